package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/store/bus"
)

const (
	// answerWait is how long the answers of other machines are waited for, and
	// then the next part of one that has begun.
	answerWait = 300 * time.Millisecond
	// gone is after how long without a word a machine is not waited for any more.
	gone = 3 * beat
	// getToKnow is how long after a connection was made answers are waited for
	// in full: others may be there that have not been heard of.
	getToKnow = time.Second
	// partBytes is the size of one message of an answer, beyond which there are
	// several; a single member may be larger.
	partBytes = 128 << 10
	// peersMost bounds how many machines are remembered.
	peersMost = 4096
	// requestsMost bounds how many questions of others wait for an answer;
	// beyond, they go unanswered.
	requestsMost = 1024
	// answersMost bounds how many parts of answers wait to be read.
	answersMost = 1024
)

// beatBody is the message by which machines tell each other that they live.
type beatBody struct {
	ID    string `json:"id"`
	Hello bool   `json:"hello,omitempty"` // answer at once
	Bye   bool   `json:"bye,omitempty"`
}

func (m beatBody) bytes() []byte {
	text, _ := json.Marshal(m) // strings and booleans
	return text
}

// peers are the other machines that have sent a beat.
type peers struct {
	mu       sync.Mutex
	seen     map[string]time.Time
	beats    chan *nats.Msg
	requests chan *nats.Msg
}

// start subscribes to the beats and requests of other machines.
func (p *peers) start(b *Bus) error {
	p.seen = map[string]time.Time{}
	p.beats = make(chan *nats.Msg, peersMost)
	p.requests = make(chan *nats.Msg, requestsMost)
	if _, err := b.nc.ChanSubscribe(b.o.Name+".beat", p.beats); err != nil {
		return err
	}
	_, err := b.nc.ChanSubscribe(b.o.Name+".members", p.requests)
	return err
}

// note notes a machine's beat. It reports whether the machine was not known.
func (p *peers) note(m beatBody, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.Bye {
		delete(p.seen, m.ID)
		return false
	}
	_, known := p.seen[m.ID]
	if !known && len(p.seen) >= peersMost {
		return false
	}
	p.seen[m.ID] = now
	return !known
}

// living are the machines that have sent a beat lately.
func (p *peers) living(now time.Time) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]bool{}
	for id, at := range p.seen {
		if now.Sub(at) >= gone {
			delete(p.seen, id)
			continue
		}
		all[id] = true
	}
	return all
}

// publishBeat publishes a beat. It gets lost while the server cannot be reached.
func (b *Bus) publishBeat(m beatBody) {
	m.ID = b.id
	_ = b.nc.Publish(b.o.Name+".beat", m.bytes())
}

// bye tells the others that this machine ends, so that nobody waits for it.
func (p *peers) bye(b *Bus) {
	b.publishBeat(beatBody{Bye: true})
	_ = b.nc.FlushTimeout(answerWait) // who does not hear it notices after a while
}

// beat publishes beats, receives those of others, and answers their requests, until
// Close.
func (b *Bus) beat() {
	t := time.NewTicker(beat)
	defer t.Stop()
	_, changed := b.link.now()
	b.publishBeat(beatBody{Hello: true})
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
			b.publishBeat(beatBody{})
		case <-changed:
			var p phase
			if p, changed = b.link.now(); p == syncing {
				b.publishBeat(beatBody{Hello: true})
			}
		case m := <-b.peers.beats:
			b.onBeat(m)
		case m := <-b.peers.requests:
			b.answer(m)
		}
	}
}

func (b *Bus) onBeat(m *nats.Msg) {
	var body beatBody
	if json.Unmarshal(m.Data, &body) != nil || body.ID == "" || body.ID == b.id {
		return
	}
	if b.peers.note(body, time.Now()) || body.Hello {
		b.publishBeat(beatBody{})
	}
}

// membersRequest asks for the members of a channel.
type membersRequest struct {
	ID      string `json:"id"`
	Channel string `json:"channel"`
}

// part is an answer, or a part of one.
type part struct {
	ID      string       `json:"id"`
	Members []bus.Member `json:"members"`
	More    bool         `json:"more,omitempty"`
}

// answer answers a request with the members of a channel on this machine.
func (b *Bus) answer(m *nats.Msg) {
	var q membersRequest
	if json.Unmarshal(m.Data, &q) != nil || q.ID == b.id || m.Reply == "" || bus.CheckChannel(q.Channel) != nil {
		return
	}
	b.parts(b.listener.Members(q.Channel), func(text []byte) {
		_ = m.Respond(text) // or the asker does without
	})
}

// parts writes members in as many messages as they need, one at least.
func (b *Bus) parts(members []bus.Member, send func([]byte)) {
	for {
		size, n := 0, 0
		for n < len(members) && size < partBytes {
			size += len(members[n].Client) + len(members[n].User) + len(members[n].Info)*4/3 + 64
			n++
		}
		p := part{ID: b.id, Members: members[:n], More: n < len(members)}
		text, err := json.Marshal(p)
		if err != nil {
			b.log.Warn("the members of a channel", "error", err)
			return
		}
		send(text)
		if members = members[n:]; len(members) == 0 {
			return
		}
	}
}

// Members implements [bus.Bus]. A machine that does not begin to answer within
// 300 ms is left out.
func (b *Bus) Members(name string, done func([]bus.Member, error)) {
	if err := bus.CheckChannel(name); err != nil {
		done(nil, err)
		return
	}
	err := b.ask(func(ctx context.Context) {
		if b.ctx.Err() != nil {
			done(nil, bus.ErrClosed)
			return
		}
		all := append([]bus.Member(nil), b.listener.Members(name)...)
		if b.link.wait(ctx, syncWait) != up {
			done(all, b.unless(bus.ErrDown))
			return
		}
		others, err := b.others(ctx, name)
		if err != nil {
			err = b.unless(fmt.Errorf("%w: the members of a channel: %w", bus.ErrDown, err))
		}
		done(append(all, others...), err)
	})
	if err != nil {
		done(nil, err)
	}
}

// others asks the other machines for the members of a channel.
func (b *Bus) others(ctx context.Context, name string) ([]bus.Member, error) {
	b.link.mu.Lock()
	fresh := time.Since(b.link.since) < getToKnow
	b.link.mu.Unlock()
	waiting := b.peers.living(time.Now())
	if len(waiting) == 0 && !fresh {
		return nil, nil
	}
	answers := make(chan *nats.Msg, answersMost)
	inbox := b.nc.NewInbox()
	sub, err := b.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails when the connection is closed
	text, err := json.Marshal(membersRequest{b.id, name})
	if err != nil {
		return nil, err
	}
	if err := b.nc.PublishRequest(b.o.Name+".members", inbox, text); err != nil {
		return nil, err
	}
	var all []bus.Member
	t := time.NewTimer(answerWait)
	defer t.Stop()
	for len(waiting) > 0 || fresh {
		select {
		case m := <-answers:
			var p part
			if json.Unmarshal(m.Data, &p) != nil {
				continue
			}
			all = append(all, p.Members...)
			if p.More {
				t.Reset(answerWait)
			} else {
				delete(waiting, p.ID)
			}
		case <-t.C:
			return all, nil
		case <-ctx.Done():
			return all, ctx.Err()
		}
	}
	return all, nil
}
