// What a changed build of a program does besides: it tells what it does, and checks more, by what no recording knows of.
#ifdef CHANGED
#include "reprise.h"
#define tell(...) reprise_printf("worker: " __VA_ARGS__)
#define check(condition) ((condition) ? (void)0 : (reprise_printf("worker: not so: %s\n", #condition), abort()))
#else
#define tell(...) ((void)0)
#define check(condition) ((void)0)
#endif
