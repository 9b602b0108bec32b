// Keys of the kernel: made, found, read, described, revoked; buffers that are too small; where one may not, that is said.
// variant: companion -DGUEST_COMPANION
#include "guest.h"
#include <linux/keyctl.h>

static long control(int operation, long a, long b, long c, long d) { return syscall(SYS_keyctl, operation, a, b, c, d); }

int main(void) {
    long ring = control(KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0);
    if (ring < 0) {
        expect(errno == EPERM || errno == ENOSYS || errno == EDQUOT);
        say("no keys here\n");
        return 0;
    }
    long key = syscall(SYS_add_key, "user", "guest:key", "secret bytes", 12, KEY_SPEC_SESSION_KEYRING);
    if (key < 0) {
        expect(errno == EPERM || errno == EDQUOT);
        say("no keys here\n");
        return 0;
    }
    char text[128];
    memset(text, '#', sizeof text);
    expect(control(KEYCTL_READ, key, (long)text, sizeof text, 0) == 12 && memcmp(text, "secret bytes#", 13) == 0);
    // The length that is needed, whatever there is room for.
    memset(text, '#', sizeof text);
    expect(control(KEYCTL_READ, key, (long)text, 4, 0) == 12 && text[4] == '#');
    expect(control(KEYCTL_READ, key, 0, 0, 0) == 12);
    expect(syscall(SYS_request_key, "user", "guest:key", NULL, 0) == key);
    expect(control(KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, (long)"user", (long)"guest:key", 0) == key);
    fails(ENOKEY, control(KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, (long)"user", (long)"guest:nothing", 0));
    long n = must(control(KEYCTL_DESCRIBE, key, (long)text, sizeof text, 0));
    expect(n <= (long)sizeof text && strncmp(text, "user;", 5) == 0 && strstr(text, "guest:key"));
    expect(control(KEYCTL_UPDATE, key, (long)"new", 3, 0) == 0 && control(KEYCTL_READ, key, (long)text, sizeof text, 0) == 3);
    must(control(KEYCTL_SET_TIMEOUT, key, 1000, 0, 0));
    fails(EFAULT, control(KEYCTL_READ, key, 8, 128, 0));
    fails(EFAULT, syscall(SYS_add_key, "user", "guest:bad", (void *)8, 12, KEY_SPEC_SESSION_KEYRING));
    fails(ENODEV, syscall(SYS_add_key, "nonsense", "guest:bad", "x", 1, KEY_SPEC_SESSION_KEYRING));
    fails(EINVAL, syscall(SYS_add_key, "user", "guest:bad", "x", 0, KEY_SPEC_SESSION_KEYRING));
    must(control(KEYCTL_REVOKE, key, 0, 0, 0));
    fails(EKEYREVOKED, control(KEYCTL_READ, key, (long)text, sizeof text, 0));
    fails(EOPNOTSUPP, control(999, 0, 0, 0, 0));
    say("ring %ld, key %ld\n", ring, key);
}
