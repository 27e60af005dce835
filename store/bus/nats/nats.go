// Package nats is the bus between machines: NATS carries the publications,
// JetStream puts them into an order and keeps the latest.
//
// # What it needs
//
// A nats-server 2.9 or later with JetStream (nats-server -js -sd FOLDER), and a
// user who may publish and subscribe to NAME.>, $JS.API.> and _INBOX.>. The
// stream NAME is made by the first machine that connects.
//
// # How it works
//
// A publication goes to the subject NAME.in.CHANNEL, which the stream keeps; the
// server publishes it again on NAME.out.CHANNEL with its number in the stream
// and that of the channel's one before, and there machines listen. So every
// machine sees the same order, and sees when something is missing, which it then
// reads from the stream. Offsets are numbers of the stream. The epoch is the
// time when the stream was made, and a token that is drawn anew if the stream
// ever goes back (a server that lost its latest writes).
//
// # While the server cannot be reached
//
// Publications are delivered on this machine at once, and wait in an outbox
// with the bounds of Keep. When the server is back, first everything that was
// missed is delivered, then the outbox is sent. Each publication carries its ID
// to the server, which takes it once, however often it is sent within the
// window of duplicates (Keep.Age, two minutes if that is any age, ten at most);
// what has to be sent again after that is looked for in the stream first.
package nats

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/observe/meter"
	"millrace/store/bus"
)

const (
	// ackTimeout is how long the server may take to confirm a publication
	// before it counts as lost on its way.
	ackTimeout = 2 * time.Second
	// askTimeout bounds a call of History, and every request of ours.
	askTimeout = 5 * time.Second
	// syncWait is how long Start and Publish wait for a server that is there,
	// while what was missed is caught up.
	syncWait = 2 * time.Second
	// closeWait is how long Close tries to send what is in the outbox.
	closeWait = 2 * time.Second
	// connectTimeout bounds one attempt to connect.
	connectTimeout = 2 * time.Second
	// pingEvery and pingsMissed: a server that has gone without a word is
	// noticed after their product at the latest.
	pingEvery   = 2 * time.Second
	pingsMissed = 2
	// beat is how often machines tell each other that they live, and how often
	// the stream is looked at.
	beat = time.Second
	// asksAtOnce is how many calls of History and Members are with the server
	// at a time, asksWaiting how many may wait for that: as many as clients that
	// one machine holds.
	asksAtOnce  = 64
	asksWaiting = 100_000
	// workers deliver, each a part of the channels.
	workers = 4
)

// namePattern is what a stream may be called: NATS itself allows more.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Options of the connection.
type Options struct {
	// URL is nats://[user:password@]host:port, nats://token@host:port, or the
	// same with tls://; several with commas between them.
	URL string
	// Name is the stream, and the first part of all subjects: machines with the
	// same name share channels. Letters, digits, - and _, at most 64. Default
	// millrace.
	Name string
	// Keep bounds the history, as for a bus in memory, with two differences. A
	// stream has no bound of channels: Channels times Messages bounds all
	// messages. And with Messages 0 the stream still holds the last one of each
	// channel, for two minutes, which History does not show. The machine that
	// makes the stream decides; others change it to theirs.
	Keep bus.Keep
	// Replicas is how many servers of a cluster of NATS keep the stream: 1, 3 or 5. 0: as
	// many as it has; one that is made has 1.
	Replicas int
	// ErrorLog is told of interruptions; nil is slog.Default().
	ErrorLog *slog.Logger
	// Meters returns the counters for the servers; nil: nothing is counted.
	Meters func(server string) *meter.Store
}

// Bus implements [bus.Bus].
type Bus struct {
	o         Options
	log       *slog.Logger
	meters    *meter.Store
	id        string // this machine's, anew each time
	seed      maphash.Seed
	seq       atomic.Uint64 // of IDs made here
	fills     atomic.Uint64 // of readings
	nc        *nats.Conn
	js        jetstream.JetStream
	listener  bus.Listener
	startedAt time.Time // Start
	window    time.Duration

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex // for the life: started, closing, and adding to asking
	start  bool
	closed bool
	tasks  sync.WaitGroup // goroutines that Start began
	asking sync.WaitGroup // goroutines of History, Members and fills
	asks   chan struct{}
	queued atomic.Int32

	link    link
	order   order
	infos   infos
	workers [workers]*worker
	outbox  outbox
	peers   peers
}

var _ bus.Bus = (*Bus)(nil)

// Check returns what is wrong with a URL, without connecting.
func Check(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		u, err := url.Parse(part)
		switch {
		case part == "":
			return errors.New("the URL of NATS is empty: write nats://host:4222")
		case err != nil && strings.Contains(text, "@"): // a part of the error may be one of a password
			return errors.New("the URL of NATS cannot be read: write nats://user:password@host:4222, with a number as the port; in a user and a password, / is written %2F, # is %23, ? is %3F, @ is %40 and a comma is %2C")
		case err != nil:
			return fmt.Errorf("the URL of NATS cannot be read: %w", hideURL(err))
		case u.Scheme != "nats" && u.Scheme != "tls":
			return fmt.Errorf("the URL of NATS has the scheme %q: write nats://host:4222 or tls://host:4222", u.Scheme)
		case u.Hostname() == "":
			return errors.New("the URL of NATS has no host: write nats://host:4222")
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
			return errors.New("the URL of NATS has something behind the port: write nats://host:4222")
		}
	}
	return nil
}

// hideURL takes the URL, which may hold a password, out of an error of net/url.
func hideURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// Open returns a bus that connects as soon as it can: a server that cannot be
// reached is not an error, but a state. It may take two seconds for each server to
// notice.
func Open(o Options) (*Bus, error) {
	if err := Check(o.URL); err != nil {
		return nil, err
	}
	o.Name = cmp.Or(o.Name, "millrace")
	if !namePattern.MatchString(o.Name) {
		return nil, fmt.Errorf("the name %q of the stream has other characters than letters, digits, - and _, or more than 64", o.Name)
	}
	b := &Bus{o: o, log: o.ErrorLog, meters: new(meter.Store), id: strings.ToLower(rand.Text()[:12]), seed: maphash.MakeSeed(), asks: make(chan struct{}, asksAtOnce)}
	if b.log == nil {
		b.log = slog.Default()
	}
	if o.Meters != nil {
		b.meters = o.Meters(b.Server())
	}
	b.window = o.duplicates()
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.link.init()
	b.outbox.init(o.Keep)
	for i := range b.workers {
		b.workers[i] = newWorker(b)
	}
	if err := b.connect(); err != nil {
		b.cancel()
		return nil, err
	}
	return b, nil
}

// Start implements [bus.Bus]. A server that is there is waited for, two
// seconds at most.
func (b *Bus) Start(l bus.Listener) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return bus.ErrClosed
	}
	if b.start {
		b.mu.Unlock()
		return errors.New("the bus was started before")
	}
	b.start = true
	b.listener = l
	b.startedAt = time.Now()
	if err := b.peers.start(b); err != nil {
		b.mu.Unlock()
		return fmt.Errorf("subscribing to the other machines: %w", err)
	}
	for _, w := range b.workers {
		b.tasks.Go(w.run)
	}
	b.tasks.Go(b.run)
	b.tasks.Go(b.beat)
	b.mu.Unlock()
	if b.nc.IsConnected() {
		b.link.wait(b.ctx, syncWait)
	}
	return nil
}

// ask runs f in a goroutine, a bounded number at a time, with a context that
// ends after askTimeout or with Close. It reports why not.
func (b *Bus) ask(f func(ctx context.Context)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return bus.ErrClosed
	}
	if b.queued.Add(1) > asksWaiting {
		b.queued.Add(-1)
		return fmt.Errorf("%w: %d questions wait for it", bus.ErrDown, asksWaiting)
	}
	b.asking.Go(func() { // Close waits for it
		defer b.queued.Add(-1)
		ctx, cancel := context.WithTimeout(b.ctx, askTimeout)
		defer cancel()
		select {
		case b.asks <- struct{}{}:
			defer func() { <-b.asks }()
		case <-ctx.Done():
		}
		f(ctx)
	})
	return nil
}

// Close implements [bus.Bus].
func (b *Bus) Close() error { return b.close(closeWait) }

func (b *Bus) close(wait time.Duration) error {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	started := b.start
	b.mu.Unlock()
	if !again && started && wait > 0 {
		b.outbox.empty(wait)
	}
	b.cancel()
	b.asking.Wait()
	b.tasks.Wait()
	if !again {
		if n := b.outbox.count(); n > 0 {
			b.log.Warn("the bus closes with publications that the other machines do not get", "messages", n)
		}
		if wait > 0 && started && b.nc.IsConnected() {
			b.peers.bye(b)
		}
		b.js.CleanupPublisher()
		b.nc.Close()
	}
	return nil
}

// Trouble is why the other machines cannot be reached now; nil: they can.
func (b *Bus) Trouble() error {
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	return b.link.trouble
}

// Waiting is how many publications wait until the server takes them.
func (b *Bus) Waiting() int { return b.outbox.count() }

// ended returns ErrClosed once the bus closes.
func (b *Bus) ended() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return bus.ErrClosed
	}
	return nil
}
