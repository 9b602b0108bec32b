// A library with thread-local variables, in a directory beside the program's: see debug_expected.rs.
__thread int counted = 5;
__thread char spare[64];

int count(int by) {
    counted += by;
    spare[0] = (char)counted;
    return counted;
}
