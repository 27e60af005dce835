package record

// A Tally counts calls and the bytes they moved.
type Tally struct{ Calls, Bytes int64 }

func (t *Tally) add(n int64) {
	t.Calls++
	t.Bytes += max(0, n)
}

// Moved is what the system calls of a server moved while it was traced.
type Moved struct {
	Sendfile, Splice Tally // bytes that never were in the program
	Read, Write      Tally // bytes copied into and out of it
	Other            int64 // calls of any other kind
}
