package bus

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// shard holds the channels of one part of all names.
type shard struct {
	m      *Memory
	mu     sync.Mutex
	active sync.WaitGroup // publishers between enter and leave
	closed bool

	channels map[string]*channel
	// floors are where channels begin that are new here, by a hash of the name:
	// the highest last offset of all those forgotten. A position from before a
	// channel was forgotten is so either its last one, after which nothing
	// came, or below where it goes on, which means that something may be
	// missing. Made at the first need.
	floors *[floors]uint64
	// first and last are the ends of the list of histories, the one written
	// longest ago first.
	first, last *history
	oldest      atomic.Uint64 // first.written; MaxUint64 without one
}

// channel is one that is listened to, has a history, or is being published to.
// It is small: a busy machine has a million that do nothing.
type channel struct {
	name      string
	turn      sync.Mutex // held while a publication is placed and delivered
	refs      int32      // publishers who have it
	listening bool
	top       uint64   // the last offset
	kept      *history // nil: nothing is kept
}

// history is what is kept of a channel. The message at i has the offset
// top-len+1+i.
type history struct {
	of         *channel
	messages   []Message // from head on; what is before is zero
	head       int
	ids        map[string]uint64 // offsets by the IDs that publishers gave; nil without
	bytes      int64
	written    uint64 // Memory.seq then
	prev, next *history
}

// len is how many messages there are.
func (h *history) len() int {
	if h == nil {
		return 0
	}
	return len(h.messages) - h.head
}

// get returns a channel, a new one if there is none.
func (s *shard) get(name string, floor int) *channel {
	c := s.channels[name]
	if c == nil {
		// A copy of its own: the caller's may hold a whole request in memory.
		c = &channel{name: strings.Clone(name), top: s.floor(floor)}
		s.channels[c.name] = c
	}
	return c
}

func (s *shard) floor(i int) uint64 {
	if s.floors == nil {
		return 0
	}
	return s.floors[i]
}

// drop forgets a channel that is of no use any more.
func (s *shard) drop(c *channel, floor int) {
	if c.listening || c.refs > 0 || c.kept != nil {
		return
	}
	delete(s.channels, c.name)
	if c.top > s.floor(floor) {
		if s.floors == nil {
			s.floors = new([floors]uint64)
		}
		s.floors[floor] = c.top
	}
}

// enter returns the channel to publish to; leave must follow.
func (s *shard) enter(name string, floor int) (*channel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.active.Add(1)
	c := s.get(name, floor)
	c.refs++
	return c, nil
}

func (s *shard) leave(c *channel, floor int) {
	s.mu.Lock()
	c.refs--
	s.drop(c, floor)
	s.mu.Unlock()
	s.active.Done()
}

// publish places a message and delivers it.
func (s *shard) publish(c *channel, msg Message) Message {
	c.turn.Lock()
	defer c.turn.Unlock()
	msg, deliver := s.place(c, msg)
	if deliver {
		s.m.listener.Deliver(msg)
	}
	return msg
}

// place gives a message its offset and keeps it, unless it is there already.
// It reports whether it is to be delivered.
func (s *shard) place(c *channel, msg Message) (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	msg.Time = time.Now()
	s.trim(c, msg.Time)
	if offset := s.find(c, msg.ID); offset > 0 {
		return c.kept.at(offset), false
	}
	seq := s.m.seq.Add(1)
	own := msg.ID == ""
	if own {
		msg.ID = s.m.newID(seq)
	}
	c.top++
	msg.Offset = c.top
	if most := s.m.keep.Load().Messages; most > 0 {
		s.append(c, msg, seq, own)
		for c.kept.len() > most {
			s.shift(c.kept)
		}
	} else if c.kept != nil { // Bound comes by in a moment
		s.clear(c.kept)
	}
	return msg, c.listening
}

// at returns the message with an offset that is kept.
func (h *history) at(offset uint64) Message {
	return h.messages[len(h.messages)-1-int(h.of.top-offset)]
}

// find returns the offset of the kept message with an ID, 0 if there is none.
func (s *shard) find(c *channel, id string) uint64 {
	if c.kept == nil || id == "" {
		return 0
	}
	if offset, ok := c.kept.ids[id]; ok {
		return offset
	}
	// The IDs made here are in no index: they seldom come back.
	if s.m.ownID(id) {
		for i := len(c.kept.messages) - 1; i >= c.kept.head; i-- {
			if c.kept.messages[i].ID == id {
				return c.kept.messages[i].Offset
			}
		}
	}
	return 0
}

// append keeps a message that has its offset already.
func (s *shard) append(c *channel, msg Message, seq uint64, own bool) {
	h := c.kept
	if h == nil {
		h = &history{of: c}
		c.kept = h
		if s.m.kept.Add(1) == 1 {
			s.m.wakeSweep()
		}
		s.account(h, int64(channelCost+len(c.name)))
	} else {
		s.unlink(h)
	}
	h.written = seq
	s.link(h)
	msg.Channel = c.name
	h.messages = append(h.messages, msg)
	if !own {
		if h.ids == nil {
			h.ids = map[string]uint64{}
		}
		h.ids[msg.ID] = msg.Offset
	}
	s.account(h, cost(msg))
}

// bound drops what new bounds of each channel have no room for. It holds the lock for
// all channels of the shard, which happens only when an operator changes a config.
func (s *shard) bound(keep Keep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := s.first; h != nil; {
		next := h.next
		for keep.Messages > 0 && h.len() > keep.Messages {
			s.shift(h)
		}
		if keep.Messages <= 0 {
			s.forget(h)
		}
		h = next
	}
}

func cost(m Message) int64 {
	n := messageCost + len(m.ID) + len(m.Data)
	if m.From != nil { // several messages may share it, and it is counted for each
		n += memberCost + len(m.From.User) + len(m.From.Info) + len(m.From.InChannel)
	}
	for key, value := range m.Tags {
		n += tagCost + len(key) + len(value)
	}
	return int64(n)
}

func (s *shard) account(h *history, bytes int64) {
	h.bytes += bytes
	s.m.bytes.Add(bytes)
}

// shift takes the oldest message away.
func (s *shard) shift(h *history) {
	m := h.messages[h.head]
	h.messages[h.head] = Message{}
	h.head++
	if h.ids[m.ID] == m.Offset {
		delete(h.ids, m.ID)
	}
	s.account(h, -cost(m))
	// Half of it empty: each message moves at most once for one that goes.
	if h.head > len(h.messages)/2 {
		n := copy(h.messages, h.messages[h.head:])
		clear(h.messages[n:])
		h.messages, h.head = h.messages[:n], 0
	}
}

// clear forgets all that is kept of a channel.
func (s *shard) clear(h *history) {
	s.unlink(h)
	s.account(h, -h.bytes)
	s.m.kept.Add(-1)
	h.of.kept = nil
}

// trim takes away what has expired.
func (s *shard) trim(c *channel, now time.Time) {
	h := c.kept
	age := s.m.keep.Load().Age
	if h == nil || age <= 0 {
		return
	}
	for before := now.Add(-age); h.len() > 0 && !h.messages[h.head].Time.After(before); {
		s.shift(h)
	}
	if h.len() == 0 {
		s.clear(h)
	}
}

// history implements Memory.History.
func (s *shard) history(name string, floor int, since *Position, limit int) (History, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return History{}, ErrClosed
	}
	c := s.channels[name]
	if c == nil {
		top := Position{s.m.epoch, s.floor(floor)}
		return History{Top: top, Complete: since != nil && *since == top}, nil
	}
	s.trim(c, time.Now())
	n := uint64(c.kept.len())
	answer := History{Top: Position{s.m.epoch, c.top}}
	if since != nil && since.Epoch == s.m.epoch && since.Offset <= c.top {
		missed := c.top - since.Offset
		answer.Complete = missed <= n
		n = min(n, missed)
	}
	if limit > 0 && n > uint64(limit) {
		n, answer.Complete = uint64(limit), false
	}
	if n > 0 {
		all := c.kept.messages
		answer.Messages = append(answer.Messages, all[len(all)-int(n):]...)
	}
	if c.kept == nil {
		s.drop(c, floor)
	}
	return answer, nil
}

// evict takes from the history that was written longest ago: all of it if
// there are too many channels, else as little as brings the bytes below their
// bound.
func (s *shard) evict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.first
	if h == nil {
		return
	}
	keep := s.m.keep.Load()
	if keep.Channels > 0 && s.m.kept.Load() > int64(keep.Channels) {
		s.forget(h)
		return
	}
	over := func() bool { return keep.Bytes > 0 && s.m.bytes.Load() > keep.Bytes }
	for over() && h.len() > 1 {
		s.shift(h)
	}
	if over() {
		s.forget(h)
	}
}

// forget clears a history, and drops its channel if that was its last use.
func (s *shard) forget(h *history) {
	c := h.of
	s.clear(h)
	_, floor := s.m.shard(c.name)
	s.drop(c, floor)
}

// sweep clears at most sweepBatch histories that were written last before a
// time, and returns how many, and when the next one was written; zero: there is none.
func (s *shard) sweep(before time.Time) (n int, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n = range sweepBatch {
		h := s.first
		if h == nil {
			return n, next
		}
		if next = h.messages[len(h.messages)-1].Time; next.After(before) {
			return n, next
		}
		s.forget(h)
	}
	return sweepBatch, next
}

// link puts a history that was just written at the end of the list.
func (s *shard) link(h *history) {
	h.prev, h.next = s.last, nil
	if s.last != nil {
		s.last.next = h
	} else {
		s.first = h
	}
	s.last = h
	s.oldest.Store(s.first.written)
}

func (s *shard) unlink(h *history) {
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		s.first = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	} else {
		s.last = h.prev
	}
	h.prev, h.next = nil, nil
	if s.first != nil {
		s.oldest.Store(s.first.written)
	} else {
		s.oldest.Store(math.MaxUint64)
	}
}
