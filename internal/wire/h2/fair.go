package h2

// fair is a lock that goes to the goroutine that has waited for longest. With a
// sync.Mutex a download that writes again and again delays other answers by a
// millisecond.
type fair chan struct{}

func newFair() fair    { return make(fair, 1) }
func (f fair) lock()   { f <- struct{}{} }
func (f fair) unlock() { <-f }

// try takes the lock if it is free, and reports whether it was.
func (f fair) try() bool {
	select {
	case f <- struct{}{}:
		return true
	default:
		return false
	}
}
