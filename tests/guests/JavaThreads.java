// Eight Java threads: synchronized blocks, wait and notify, a thread pool, concurrent maps, and garbage to collect.
// run: 8 2000

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class JavaThreads {
    private static final Object lock = new Object();
    private static long counter, order;
    private static volatile long racy;
    private static int turn;

    private static long mix(long x) {
        x = (x ^ (x >>> 31)) * 0x9e3779b97f4a7c15L;
        return x ^ (x >>> 29);
    }

    public static void main(String[] arguments) throws Exception {
        int count = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 8;
        int rounds = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 2000;
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < count; t++) {
            final int me = t;
            Thread thread = new Thread(() -> {
                List<byte[]> garbage = new ArrayList<>();
                for (int i = 0; i < rounds; i++) {
                    synchronized (lock) {
                        counter++;
                        order = mix(order + me);
                    }
                    racy++;
                    garbage.add(new byte[1000]);
                    if (garbage.size() > 100) garbage.clear();
                }
                synchronized (lock) {
                    try {
                        while (turn != me) lock.wait();
                    } catch (InterruptedException e) {
                        throw new RuntimeException(e);
                    }
                    turn++;
                    lock.notifyAll();
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread t : threads) t.join();
        if (counter != (long) count * rounds || turn != count) System.exit(99);
        System.out.println("order " + order + ", racy counter " + racy);
        ExecutorService pool = Executors.newFixedThreadPool(4);
        ConcurrentHashMap<Integer, Long> table = new ConcurrentHashMap<>();
        List<Future<Long>> futures = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            final int n = i;
            futures.add(pool.submit(() -> table.merge(n % 7, Thread.currentThread().getId(), (a, b) -> mix(a + b))));
        }
        long sum = 0;
        for (Future<Long> f : futures) sum = mix(sum + f.get());
        pool.shutdown();
        System.gc();
        System.out.println("sum " + sum + ", at " + System.nanoTime());
    }
}
