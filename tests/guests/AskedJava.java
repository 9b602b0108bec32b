// What crates/reprise/tests/ask/java.rs looks at: a thread that waits for ever, one that waits for a lock, and the one that has it and ends the program.

import java.util.concurrent.CountDownLatch;

public class AskedJava {
    static final Object LOCK = new Object();

    static void waits(CountDownLatch ready) {
        ready.countDown();
        try {
            new CountDownLatch(1).await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static void locks(CountDownLatch ready) {
        ready.countDown();
        synchronized (LOCK) {
            System.out.println("never");
        }
    }

    static Thread started(String name, Runnable what) {
        Thread thread = new Thread(what, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws InterruptedException {
        CountDownLatch ready = new CountDownLatch(2);
        synchronized (LOCK) {
            Thread waiter = started("waiter", () -> waits(ready));
            Thread locker = started("locker", () -> locks(ready));
            ready.await();
            while (locker.getState() != Thread.State.BLOCKED || waiter.getState() != Thread.State.WAITING) {
                Thread.onSpinWait();
            }
            Runtime.getRuntime().halt(3);
        }
    }
}
