import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/** An HTTP server with four threads; SIGTERM ends it in good order, with status 143. */
public class HttpThreads {
    public static void main(String[] args) throws Exception {
        AtomicLong served = new AtomicLong();
        ExecutorService threads = Executors.newFixedThreadPool(4);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 64);
        server.createContext("/", exchange -> {
            byte[] body = ("request " + served.incrementAndGet() + " at " + System.nanoTime() + "\n").getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.setExecutor(threads);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            server.stop(0);
            threads.shutdownNow();
            System.out.println("served some: " + (served.get() > 0));
        }));
        server.start();
    }
}
