// What a program can say to Reprise. Needs nothing but this header: no library, and no function of libc's.
//
//     reprise_printf("n is %d here\n", n);      // to the standard error, natively, while recording, and in a replay
//     reprise_write(text, length);              // the same, of bytes
//     reprise_begin("load");                    // from here on, up to reprise_end() by the same thread, is a stretch of the run with this name;
//     reprise_end();                            // `reprise stretches` lists them, `reprise replay -d --at stretch:load` goes there
//     reprise_start();                          // records the process from here on: 0, or -1 when that can't be (`reprise` must be in PATH)
//     reprise_stop();                           // ends the recording; the trace is whole a moment later, and the process goes on
//
// Stretches may lie in one another. Both calls are system calls that fail, natively as well (EINVAL), and cost as much; a recording has them.
//
// reprise_start runs `reprise attach`, in a process of its own, for which the program gets no SIGCHLD. It can be called once in a process's life, and not where
// the program is being recorded already. REPRISE_PROGRAM, defined before this header, is another name or path of reprise.
//
// Of the first two, neither is a system call or an operation that a recording knows of, so both may be put into a program that was recorded without them: rebuilt, it
// replays the same trace (`reprise replay --with PROGRAM`). They allocate nothing, take no lock, and leave errno alone. That is why the text is made
// here: libc's snprintf takes locks that a recording has in its order.
//
// Of a format they know d i u x X o c s p f and %, the lengths hh h l ll z j t, the flags - 0 + space #, width and precision. e, g and a are
// printed as f. At most 1023 bytes are shown.
#ifndef REPRISE_H
#define REPRISE_H

#include <stdarg.h>

#if !defined(__linux__) || !defined(__x86_64__)
#error "reprise.h is for x86-64 Linux"
#endif

// prctl(2) with this option is Reprise's. A kernel knows no such option, and says so.
#define REPRISE_PRINT 0x52505250
#define REPRISE_STRETCH_BEGINS 0x52505253
#define REPRISE_STRETCH_ENDS 0x52505245

// The nops keep Reprise from taking this for a place that is worth rewriting: no recording has it.
__attribute__((unused)) static long reprise_call_(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("nop\n\tsyscall\n\tnop" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

__attribute__((unused)) static void reprise_write(const void *bytes, unsigned long length) {
    const long prctl = 157, write = 1, standard_error = 2;
    if (reprise_call_(prctl, REPRISE_PRINT, (long)bytes, (long)length) < 0) {
        reprise_call_(write, standard_error, (long)bytes, (long)length);
    }
}

// At most 4095 bytes of the name are recorded.
__attribute__((unused)) static void reprise_begin(const char *name) {
    const long prctl = 157;
    reprise_call_(prctl, REPRISE_STRETCH_BEGINS, (long)name, 0);
}

__attribute__((unused)) static void reprise_end(void) {
    const long prctl = 157;
    reprise_call_(prctl, REPRISE_STRETCH_ENDS, 0, 0);
}

#define REPRISE_STOPS 0x52505354
#ifndef REPRISE_PROGRAM
#define REPRISE_PROGRAM "reprise"
#endif

__attribute__((unused)) static void reprise_stop(void) {
    const long prctl = 157;
    reprise_call_(prctl, REPRISE_STOPS, 0, 0);
}

__attribute__((unused, noinline)) static int reprise_start(void) {
    extern char **environ;
    const long prctl = 157, getpid = 39, clone = 56, execve = 59, wait4 = 61, exit_group = 231;
    const long set_ptracer = 0x59616d61, all_children = 0x40000000;
    char digits[24], pid[24];
    int status = -1, length = 0;
    long child, waited;
    for (unsigned long n = (unsigned long)reprise_call_(getpid, 0, 0, 0); n; n /= 10) digits[length++] = (char)('0' + n % 10);
    for (int i = 0; i < length; i++) pid[i] = digits[length - 1 - i];
    pid[length] = 0;
    const char *arguments[] = {"/usr/bin/env", REPRISE_PROGRAM, "attach", "--quiet", "--background", pid, 0};
    // Where only ancestors may trace (Yama), whoever comes of the child may.
    reprise_call_(prctl, set_ptracer, -1, 0);
    child = reprise_call_(clone, 0, 0, 0);
    if (child == 0) {
        reprise_call_(execve, (long)arguments[0], (long)arguments, (long)environ);
        reprise_call_(exit_group, 127, 0, 0);
    }
    do {
        register long usage __asm__("r10") = 0;
        __asm__ volatile("nop\n\tsyscall\n\tnop"
                         : "=a"(waited)
                         : "a"(wait4), "D"(child), "S"(&status), "d"(all_children), "r"(usage)
                         : "rcx", "r11", "memory");
    } while (child > 0 && waited == -4);
    reprise_call_(prctl, set_ptracer, 0, 0);
    return child > 0 && waited == child && status == 0 ? 0 : -1;
}

// Text in the making: what does not fit is dropped.
struct reprise_text_ {
    char bytes[1023];
    unsigned length;
};

__attribute__((unused)) static void reprise_put_(struct reprise_text_ *t, char c) {
    if (t->length < sizeof t->bytes) t->bytes[t->length++] = c;
}

// A number's sign, prefix and digits (in reverse), with at least so many digits, in a field.
__attribute__((unused)) static void reprise_field_(struct reprise_text_ *t, const char *prefix, const char *digits, int n, int least, int width,
                                                   int left, int zeros) {
    int signs = 0;
    while (prefix[signs]) signs++;
    int more = least > n ? least - n : 0;
    int blank = width - signs - more - n;
    if (zeros && !left && blank > 0) more += blank, blank = 0;
    for (; !left && blank > 0; blank--) reprise_put_(t, ' ');
    for (int i = 0; i < signs; i++) reprise_put_(t, prefix[i]);
    for (; more > 0; more--) reprise_put_(t, '0');
    while (n > 0) reprise_put_(t, digits[--n]);
    for (; blank > 0; blank--) reprise_put_(t, ' ');
}

__attribute__((unused)) static int reprise_digits_(char *to, unsigned long long value, unsigned base, int upper) {
    int n = 0;
    do to[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % base];
    while ((value /= base) != 0);
    return n;
}

// A floating-point number, with so many digits behind the point; one that is too large is shown as inf.
__attribute__((unused)) static int reprise_real_(char *to, double value, int precision) {
    unsigned long long scale = 1;
    int n = 0;
    if (value != value || value > 9e18) {
        const char *word = value != value ? "nan" : "fni";
        for (; word[n]; n++) to[n] = word[n];
        return n;
    }
    for (int i = 0; i < precision; i++) scale *= 10;
    unsigned long long whole = (unsigned long long)value;
    unsigned long long part = (unsigned long long)((value - (double)whole) * (double)scale + 0.5);
    if (part >= scale) whole++, part -= scale;
    for (int i = 0; i < precision; i++, part /= 10) to[n++] = (char)('0' + part % 10);
    if (precision > 0) to[n++] = '.';
    return n + reprise_digits_(to + n, whole, 10, 0);
}

// Its room is not in the caller's frame.
__attribute__((unused, noinline, format(printf, 1, 0))) static void reprise_vprintf(const char *format, va_list args) {
    struct reprise_text_ text;
    char digits[64];
    text.length = 0;
    for (const char *f = format; *f; f++) {
        int left = 0, zeros = 0, plus = 0, space = 0, other = 0, width = 0, precision = -1, size = 0;
        if (*f != '%') {
            reprise_put_(&text, *f);
            continue;
        }
        for (f++;; f++) {
            if (*f == '-') left = 1;
            else if (*f == '0') zeros = 1;
            else if (*f == '+') plus = 1;
            else if (*f == ' ') space = 1;
            else if (*f == '#') other = 1;
            else break;
        }
        if (*f == '*') {
            width = va_arg(args, int);
            if (width < 0) left = 1, width = -width;
            f++;
        } else {
            while (*f >= '0' && *f <= '9' && width < 10000) width = 10 * width + *f++ - '0';
        }
        if (*f == '.') {
            precision = 0;
            if (*++f == '*') precision = va_arg(args, int), f++;
            else
                while (*f >= '0' && *f <= '9' && precision < 10000) precision = 10 * precision + *f++ - '0';
        }
        for (;; f++) {
            if (*f == 'h') size--;
            else if (*f == 'l') size++;
            else if (*f == 'z' || *f == 'j' || *f == 't') size = 2;
            else break;
        }
        if (precision >= 0 && *f != 'f') zeros = 0;
        switch (*f) {
        case 'd':
        case 'i': {
            long long v = size > 0 ? va_arg(args, long) : va_arg(args, int);
            if (size == -1) v = (short)v;
            if (size < -1) v = (signed char)v;
            unsigned long long u = v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v;
            int n = precision == 0 && u == 0 ? 0 : reprise_digits_(digits, u, 10, 0);
            reprise_field_(&text, v < 0 ? "-" : plus ? "+" : space ? " " : "", digits, n, precision, width, left, zeros);
            break;
        }
        case 'u':
        case 'x':
        case 'X':
        case 'o': {
            unsigned long long v = size > 0 ? va_arg(args, unsigned long) : va_arg(args, unsigned);
            if (size == -1) v = (unsigned short)v;
            if (size < -1) v = (unsigned char)v;
            unsigned base = *f == 'u' ? 10 : *f == 'o' ? 8 : 16;
            int n = precision == 0 && v == 0 ? 0 : reprise_digits_(digits, v, base, *f == 'X');
            if (other && *f == 'o' && precision <= n && v != 0) precision = n + 1;
            const char *prefix = other && base == 16 && v != 0 ? (*f == 'X' ? "0X" : "0x") : "";
            reprise_field_(&text, prefix, digits, n, precision, width, left, zeros);
            break;
        }
        case 'p': {
            int n = reprise_digits_(digits, (unsigned long long)va_arg(args, void *), 16, 0);
            reprise_field_(&text, "0x", digits, n, 0, width, left, 0);
            break;
        }
        case 'c':
            digits[0] = (char)va_arg(args, int);
            reprise_field_(&text, "", digits, 1, 0, width, left, 0);
            break;
        case 's': {
            const char *s = va_arg(args, const char *);
            int n = 0;
            if (!s) s = "(null)";
            while ((precision < 0 || n < precision) && s[n]) n++;
            for (int i = n; !left && i < width; i++) reprise_put_(&text, ' ');
            for (int i = 0; i < n; i++) reprise_put_(&text, s[i]);
            for (int i = n; left && i < width; i++) reprise_put_(&text, ' ');
            break;
        }
        case 'e':
        case 'f':
        case 'g':
        case 'a': {
            double v = va_arg(args, double);
            int n = reprise_real_(digits, v < 0 ? -v : v, precision < 0 ? 6 : precision > 18 ? 18 : precision);
            reprise_field_(&text, v < 0 ? "-" : plus ? "+" : space ? " " : "", digits, n, 0, width, left, zeros);
            break;
        }
        case '%': reprise_put_(&text, '%'); break;
        default:
            reprise_put_(&text, '%');
            f--;
            break;
        }
    }
    if (text.length > 0) reprise_write(text.bytes, text.length);
}

__attribute__((unused, format(printf, 1, 2))) static void reprise_printf(const char *format, ...) {
    va_list args;
    va_start(args, format);
    reprise_vprintf(format, args);
    va_end(args);
}

#endif
