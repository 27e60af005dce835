package bus

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Shared is one bus for several users within a process, one after the other or at the
// same time: on a reload the old user still has clients when the new one has some
// already. Both get every publication, whoever made it, and share the history.
type Shared struct {
	bus Bus

	interest sync.Mutex // held while it is decided, and said, what is listened to; before mu

	mu      sync.RWMutex // held for reading while somebody is told something
	users   []*sharedUser
	started bool
	state   error
	closed  bool
}

// Share takes over a bus that was not started. It must be closed, after all
// that came from Join.
func Share(b Bus) *Shared { return &Shared{bus: b} }

// Join returns the bus for one more user. Its Close leaves the bus itself open.
func (s *Shared) Join() Bus {
	return &sharedUser{Bus: s.bus, shared: s, channels: map[string]struct{}{}}
}

// Close closes the bus.
func (s *Shared) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.bus.Close()
}

// sharedUser is the bus as one of the users has it.
type sharedUser struct {
	Bus
	shared   *Shared
	listener Listener
	channels map[string]struct{} // that are listened to
	gone     bool
}

// Start implements Bus. Who comes later is told how things stand.
func (u *sharedUser) Start(l Listener) error {
	s := u.shared
	s.mu.Lock()
	switch {
	case s.closed || u.gone:
		s.mu.Unlock()
		return ErrClosed
	case u.listener != nil:
		s.mu.Unlock()
		return errors.New("the bus was started before")
	}
	u.listener = l
	s.users = append(s.users, u)
	first, state := !s.started, s.state
	s.started = true
	s.mu.Unlock()
	if first {
		return s.bus.Start((*sharedListener)(s)) // may tell its state at once
	}
	if state != nil {
		l.State(state)
	}
	return nil
}

// Listen implements Bus.
func (u *sharedUser) Listen(channel string) error {
	s := u.shared
	s.interest.Lock()
	defer s.interest.Unlock()
	s.mu.Lock()
	if u.gone {
		s.mu.Unlock()
		return ErrClosed
	}
	others := s.listens(channel)
	u.channels[channel] = struct{}{} // before: what is delivered at once counts
	s.mu.Unlock()
	if others {
		return nil
	}
	err := u.Bus.Listen(channel)
	if err != nil {
		s.mu.Lock()
		delete(u.channels, channel)
		s.mu.Unlock()
	}
	return err
}

// listens reports whether any user listens to a channel. mu is held.
func (s *Shared) listens(channel string) bool {
	return slices.ContainsFunc(s.users, func(u *sharedUser) bool {
		_, ok := u.channels[channel]
		return ok
	})
}

// Ignore implements Bus.
func (u *sharedUser) Ignore(channel string) {
	s := u.shared
	s.interest.Lock()
	defer s.interest.Unlock()
	s.mu.Lock()
	delete(u.channels, channel)
	last := !s.listens(channel)
	s.mu.Unlock()
	if last {
		u.Bus.Ignore(channel)
	}
}

// Publish implements Bus.
func (u *sharedUser) Publish(ctx context.Context, m Message) (Message, error) {
	if u.left() {
		return Message{}, ErrClosed
	}
	return u.Bus.Publish(ctx, m)
}

// History implements Bus.
func (u *sharedUser) History(channel string, since *Position, limit int, done func(History, error)) {
	if u.left() {
		done(History{}, ErrClosed)
		return
	}
	u.Bus.History(channel, since, limit, done)
}

// Members implements Bus.
func (u *sharedUser) Members(channel string, done func([]Member, error)) {
	if u.left() {
		done(nil, ErrClosed)
		return
	}
	u.Bus.Members(channel, done)
}

func (u *sharedUser) left() bool {
	u.shared.mu.RLock()
	defer u.shared.mu.RUnlock()
	return u.gone
}

// Close implements Bus: of this user's part.
func (u *sharedUser) Close() error {
	s := u.shared
	s.interest.Lock()
	defer s.interest.Unlock()
	s.mu.Lock()
	if u.gone {
		s.mu.Unlock()
		return nil
	}
	u.gone = true
	s.users = slices.DeleteFunc(s.users, func(o *sharedUser) bool { return o == u })
	var last []string
	for channel := range u.channels {
		if !s.listens(channel) {
			last = append(last, channel)
		}
	}
	u.channels = nil
	s.mu.Unlock()
	for _, channel := range last {
		u.Bus.Ignore(channel)
	}
	return nil
}

// sharedListener forwards to all users what the bus reports.
type sharedListener Shared

func (l *sharedListener) each(f func(u *sharedUser)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, u := range l.users {
		f(u)
	}
}

// Deliver implements Listener.
func (l *sharedListener) Deliver(m Message) {
	l.each(func(u *sharedUser) {
		if _, ok := u.channels[m.Channel]; ok {
			u.listener.Deliver(m)
		}
	})
}

// Placed implements Listener.
func (l *sharedListener) Placed(channel, id string, offset uint64) {
	l.each(func(u *sharedUser) { u.listener.Placed(channel, id, offset) })
}

// Reset implements Listener.
func (l *sharedListener) Reset(channel string) {
	l.each(func(u *sharedUser) { u.listener.Reset(channel) })
}

// State implements Listener.
func (l *sharedListener) State(err error) {
	l.mu.Lock()
	l.state = err
	l.mu.Unlock()
	l.each(func(u *sharedUser) { u.listener.State(err) })
}

// Members implements Listener.
func (l *sharedListener) Members(channel string) (all []Member) {
	l.each(func(u *sharedUser) { all = append(all, u.listener.Members(channel)...) })
	return all
}
