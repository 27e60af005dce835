package h2

import (
	"sync"
	"time"
)

// window is the connection's window for DATA (RFC 9113, 6.9). Net/http keeps its
// own count of it, which does not know what the host has sent: that is its debt,
// by which it believes the window to be larger than it is. Later increments pay
// the debt before they reach net/http, and its DATA waits for the real window.
type window struct {
	mu     sync.Mutex
	more   sync.Cond
	real   int64
	debt   int64
	empty  int64 // since when there is none, in Unix nanoseconds; 0: there is some
	closed bool
}

func (w *window) init(n int64) {
	w.more.L = &w.mu
	w.real = n
}

// left is how much may be sent now.
func (w *window) left() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.real
}

// take spends n bytes for the host, if they are there.
func (w *window) take(n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > w.real {
		return false
	}
	w.spend(n)
	w.debt += n
	return true
}

// grow adds an increment and returns how much of it is for net/http. It reports
// false when the window would be larger than it may be.
func (w *window) grow(n int64) (pass int64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.real+n > maxWindow {
		return 0, false
	}
	w.real += n
	if w.real > 0 {
		w.empty = 0
	}
	w.more.Broadcast()
	pass = max(0, n-max(0, w.debt))
	w.debt -= n - pass
	return pass, true
}

// settle begins net/http's count: it believes in the default. It returns by how
// much that must grow at once.
func (w *window) settle() (grow int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.debt = max(0, defaultWindow-w.real)
	return max(0, w.real-defaultWindow)
}

// wait takes up to n bytes for net/http's DATA, as soon as there are any. It
// returns 0 when the connection is closed, and when none have come for so long:
// other frames of net/http's wait behind this one.
func (w *window) wait(n int64, most time.Duration) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.real <= 0 && !w.closed {
		late := false
		timer := time.AfterFunc(most, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			late = true
			w.more.Broadcast()
		})
		defer timer.Stop()
		for w.real <= 0 && !w.closed && !late {
			w.more.Wait()
		}
	}
	if w.closed || w.real <= 0 {
		return 0
	}
	n = min(n, w.real)
	w.spend(n)
	return n
}

// spend takes n bytes, which are there.
func (w *window) spend(n int64) {
	if w.real -= n; w.real <= 0 && n > 0 {
		w.empty = time.Now().UnixNano()
	}
}

// emptyBefore reports whether there is none, and was none at that time.
func (w *window) emptyBefore(then int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.empty != 0 && w.empty <= then
}

func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.more.Broadcast()
}

// over reports whether the connection is closed.
func (w *window) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
