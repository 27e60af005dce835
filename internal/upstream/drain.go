package upstream

import (
	"errors"
	"fmt"
)

// The errors of Drain.
var (
	ErrNoServer   = errors.New("the upstream has no such server")
	ErrLastServer = errors.New("it is the only one that gets requests")
)

// Drain keeps new requests from a server, whatever cookies or hashes say, until it
// is called with on set to false; what is under way ends by itself. The last server
// that gets requests is not drained. It holds for as long as the pool lives.
func (p *Pool) Drain(address string, on bool) error {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	var meant *server
	others := 0
	for _, s := range p.servers {
		switch {
		case s.name == address:
			meant = s
		case !s.drained:
			others++
		}
	}
	switch {
	case meant == nil:
		return fmt.Errorf("draining %s: %w", address, ErrNoServer)
	case on && others == 0:
		return fmt.Errorf("draining %s: %w", address, ErrLastServer)
	case meant.drained == on:
		return nil
	}
	if meant.drained = on; !on {
		meant.back = now // with slow_start it does not get all at once
	}
	p.dispatch(now)
	return nil
}
