package lane

import "time"

// Pace enforces the minimum speed of an upload. It has a budget of time, at most the
// body timeout. Waiting uses it up, and bytes earn some back, so that neither
// silence nor a few bytes now and then hold a connection for long. Time that the
// server itself takes does not count.
type Pace struct {
	left    time.Duration
	started bool
}

// Left is how long the next bytes may take.
func (p *Pace) Left(most time.Duration) time.Duration {
	if !p.started {
		p.started, p.left = true, most
	}
	return p.left
}

// Took notes that n bytes came after that time. rate is in bytes a second;
// with 0 any byte will do.
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
