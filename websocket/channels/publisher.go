package channels

import (
	"context"
	"errors"
	"sync"
	"time"

	"millrace/store/bus"
)

const (
	// publishers is how many publications of clients may be on their way at
	// once: on a bus between machines each waits for its turn of the network.
	publishers = 64
	// maxWaiting is how many bytes of publications of all clients may wait for
	// that, and waitingEach those of one client.
	maxWaiting  = 64 << 20
	waitingEach = 4 << 20
	// jobCost is what a publication takes besides its data.
	jobCost = 256
	// publishTimeout is after how long a publication counts as failed.
	publishTimeout = 10 * time.Second
)

var (
	errBusy = errors.New("too many publications are waiting: wait for the answers, and try again")
	errDone = errors.New("the channels are being closed: come back and try again")
)

// publisher sends the publications of WebSocket clients, whose loops must not wait for
// the bus. It sends those of one client one after the other, so that they keep their
// order. A publication to a channel to which the same client is just subscribing waits
// for the answer to that, and so do the client's later ones: whoever subscribes and
// then publishes gets its own publication.
type publisher struct {
	publish func(ctx context.Context, m bus.Message) (bus.Message, error)
	ctx     context.Context // ends with close
	end     context.CancelFunc
	group   sync.WaitGroup

	mu      sync.Mutex
	lines   map[*session]*line
	ready   []*line // with a job that can be done
	working int
	bytes   int
	closed  bool
}

// line is the queue of one client's publications.
type line struct {
	s     *session
	jobs  []job
	bytes int
	idle  bool // not in ready, and none of it is on its way
}

// job is a publication. done is called on a goroutine of the publisher.
type job struct {
	message bus.Message
	after   *joining // it waits until that is answered; nil: it does not
	done    func(m bus.Message, err error)
}

func (j *job) waits() bool { return j.after != nil && !j.after.over.Load() }

func (j *job) cost() int { return len(j.message.Data) + jobCost }

func newPublisher(publish func(ctx context.Context, m bus.Message) (bus.Message, error)) *publisher {
	p := &publisher{publish: publish, lines: map[*session]*line{}}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p
}

// add takes a job without waiting. If it returns an error, done is not called.
func (p *publisher) add(s *session, j job) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errDone
	}
	l := p.lines[s]
	switch cost := j.cost(); {
	case l == nil && p.bytes+cost > maxWaiting, l != nil && (p.bytes+cost > maxWaiting || l.bytes+cost > waitingEach):
		return errBusy
	case l == nil:
		l = &line{s: s, idle: true}
		p.lines[s] = l
	}
	l.jobs = append(l.jobs, j)
	l.bytes += j.cost()
	p.bytes += j.cost()
	p.offer(l)
	p.staff()
	return nil
}

// offer adds a line to ready if its first job can be done; mu is held.
func (p *publisher) offer(l *line) {
	if p.closed || !l.idle || len(l.jobs) == 0 || l.jobs[0].waits() {
		return
	}
	l.idle = false
	p.ready = append(p.ready, l)
}

// staff starts a goroutine if there is work for one more; mu is held.
func (p *publisher) staff() {
	if len(p.ready) > 0 && p.working < publishers {
		p.working++
		p.group.Go(p.work)
	}
}

// release is called when a subscription was answered for which publications of a
// client wait.
func (p *publisher) release(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lines[s]; l != nil {
		p.offer(l)
		p.staff()
	}
}

// work does jobs while there are any.
func (p *publisher) work() {
	for {
		l, j, ok := p.next()
		if !ok {
			return
		}
		ctx, cancel := publishContext(p.ctx)
		m, err := p.publish(ctx, j.message)
		cancel()
		j.done(m, err)
		p.finish(l, j.cost())
	}
}

func (p *publisher) next() (*line, job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) == 0 || p.closed {
		p.working--
		return nil, job{}, false
	}
	l := p.ready[0]
	p.ready[0] = nil
	if p.ready = p.ready[1:]; len(p.ready) == 0 {
		p.ready = nil // what was in front of it is let go
	}
	j := l.jobs[0]
	l.jobs[0] = job{}
	l.jobs = l.jobs[1:]
	return l, j, true
}

// finish puts a line at the end of ready if its next job can be done, so that clients
// take turns.
func (p *publisher) finish(l *line, cost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.bytes -= cost
	p.bytes -= cost
	l.idle = true
	if p.offer(l); len(l.jobs) == 0 {
		delete(p.lines, l.s)
	}
}

// close lets what is on its way end, as failed if it would have to wait, and
// forgets the rest.
func (p *publisher) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.group.Wait()
}
