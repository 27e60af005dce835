package h2

import (
	"sync"
	"time"
)

// window is the connection's window for DATA (RFC 9113, 6.9). Net/http has its own count
// of it, which does not include what the host has sent. That difference is debt. Example:
// the window is 65,535 and the host sends 5,000; net/http still counts 65,535, so debt is
// 5,000. The client's next increment of 8,000 pays the debt first: net/http gets 3,000.
// Until then net/http's DATA may have to wait here, for the real window.
type window struct {
	mu         sync.Mutex
	more       sync.Cond
	size       int64
	debt       int64
	emptySince int64 // in Unix nanoseconds; 0: the window is not empty
	closed     bool
}

func (w *window) init(n int64) {
	w.more.L = &w.mu
	w.size = n
}

// takeUpTo is take for as much of n as the window has.
func (w *window) takeUpTo(n int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n = max(0, min(n, w.size)); n > 0 {
		w.spend(n)
		w.debt += n
	}
	return n
}

// left is how much may be sent now.
func (w *window) left() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// take uses n bytes for an answer of the host. It reports false where there are fewer.
func (w *window) take(n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > w.size {
		return false
	}
	w.spend(n)
	w.debt += n
	return true
}

// grow adds an increment and returns how much of it net/http gets. It reports false
// where the window would become too large.
func (w *window) grow(n int64) (pass int64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size+n > maxWindow {
		return 0, false
	}
	w.size += n
	if w.size > 0 {
		w.emptySince = 0
	}
	w.more.Broadcast()
	pass = max(0, n-max(0, w.debt))
	w.debt -= n - pass
	return pass, true
}

// settle begins net/http's count, which starts at the default of the RFC. It returns the
// increment that net/http must get at once.
func (w *window) settle() (grow int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.debt = max(0, defaultWindow-w.size)
	return max(0, w.size-defaultWindow)
}

// wait uses up to n bytes for net/http's DATA, as soon as there are any. It returns 0
// when the connection is closed, and after the duration most without a byte: net/http's
// other frames wait behind this one.
func (w *window) wait(n int64, most time.Duration) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size <= 0 && !w.closed {
		late := false
		timer := time.AfterFunc(most, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			late = true
			w.more.Broadcast()
		})
		defer timer.Stop()
		for w.size <= 0 && !w.closed && !late {
			w.more.Wait()
		}
	}
	if w.closed || w.size <= 0 {
		return 0
	}
	n = min(n, w.size)
	w.spend(n)
	return n
}

// spend uses n bytes. The window has them.
func (w *window) spend(n int64) {
	if w.size -= n; w.size <= 0 && n > 0 {
		w.emptySince = time.Now().UnixNano()
	}
}

// emptyBefore reports whether the window is empty and has been since then or longer, in
// Unix nanoseconds.
func (w *window) emptyBefore(then int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.emptySince != 0 && w.emptySince <= then
}

func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.more.Broadcast()
}

// isClosed reports whether the connection is closed.
func (w *window) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
