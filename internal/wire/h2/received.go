package h2

import "sync"

// received is the window that the client has for the bodies of its requests (RFC 9113, 6.9).
// Each server of net/http believes that it begins with the default. Example: the first one
// has let it grow to 1,048,576 and ends. The second one begins with 65,535 and grants 983,041
// at once, as the first did; the client has these already, so it hears nothing of them.
type received struct {
	mu      sync.Mutex
	left    int64 // that the client may send
	surplus int64 // what of it net/http does not know; below 0: what net/http believes too much
}

// take notes n bytes of a body. It reports false if the client had no window for them.
func (r *received) take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left -= n
	return r.left >= 0
}

// settle is called when net/http begins to count.
func (r *received) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.surplus = r.left - defaultWindow
}

// grant notes that net/http grants n bytes, and returns how many the client gets.
func (r *received) grant(n int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	pass := max(0, n-r.surplus)
	r.surplus -= n - pass
	r.left += pass
	return pass
}

// giveBack gives the client the window for n bytes of which net/http does not hear.
func (r *received) giveBack(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += n
}
