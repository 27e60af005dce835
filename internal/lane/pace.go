package lane

import "time"

// Pace enforces a minimum speed of transfer, for instance 1 KiB/s of an upload. It is a
// budget of time, at most the timeout. Waiting uses it up, and bytes earn some back:
// neither silence nor one byte now and then keeps a connection for long. Time in which
// the server itself does not read does not count.
type Pace struct {
	left    time.Duration
	started bool
}

// Left returns how long the next bytes may take. most is the timeout.
func (p *Pace) Left(most time.Duration) time.Duration {
	if !p.started {
		p.started, p.left = true, most
	}
	return p.left
}

// Took records that n bytes came after waited. rate is the minimum in bytes a second;
// with 0 any byte renews the budget.
func (p *Pace) Took(waited time.Duration, n int, most time.Duration, rate int64) {
	if n <= 0 {
		return
	}
	if rate <= 0 || int64(n) > rate*int64(most/time.Second+1) {
		p.left = most
		return
	}
	p.left = min(most, p.left-waited+time.Duration(int64(n)*int64(time.Second)/rate))
}
