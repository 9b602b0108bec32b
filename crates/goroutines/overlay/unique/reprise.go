package unique

import _ "unsafe"

// What is unique depends on the garbage collector, and nobody can see it: it is not recorded.

//go:linkname repriseOn runtime.repriseOn
var repriseOn uint32

//go:linkname repriseNest runtime.repriseNest
func repriseNest()

//go:linkname repriseUnnest runtime.repriseUnnest
func repriseUnnest()
