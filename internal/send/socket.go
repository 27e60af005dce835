package send

// Path says how bytes came onto a socket; the metrics count them apart, so
// that nobody needs a debugger to see whether zero-copy works.
type Path uint8

const (
	// Copied bytes went through a buffer of this process.
	Copied Path = iota
	// Writev bytes went straight from finished bytes in memory.
	Writev
	// Sendfile bytes went from the page cache without entering this process.
	Sendfile
)

// chunk is the most that one sendfile(2) call is asked for: enough that the
// calls cost nothing, little enough that a fast reader cannot keep the thread
// in the kernel for long.
const chunk = 1 << 20
