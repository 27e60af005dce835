package h2

// fair is a lock that goes to who has waited for longest. With a sync.Mutex a
// download that writes again and again keeps an answer waiting for a millisecond.
type fair chan struct{}

func newFair() fair    { return make(fair, 1) }
func (f fair) lock()   { f <- struct{}{} }
func (f fair) unlock() { <-f }

// try is lock where nobody has it, or else reports false.
func (f fair) try() bool {
	select {
	case f <- struct{}{}:
		return true
	default:
		return false
	}
}
