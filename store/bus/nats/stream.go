package nats

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/store/bus"
)

const (
	// anyAgeWindow and longestWindow bound the window in which the server knows
	// an ID again; each ID costs it about 150 bytes.
	anyAgeWindow  = 2 * time.Minute
	longestWindow = 10 * time.Minute
	// shortestAge is the least that a stream takes.
	shortestAge = 100 * time.Millisecond
	// remark is the stream's description: where its limits were last widened,
	// and the token of its epoch. Servers before 2.10 have no other place.
	remark = "channels of millrace; limits since %d; order %s"
)

// subjects. IN is what the stream keeps, OUT where the server publishes it
// again.
func (b *Bus) in(token string) string  { return b.o.Name + ".in." + token }
func (b *Bus) out(token string) string { return b.o.Name + ".out." + token }

func (o Options) duplicates() time.Duration {
	return min(o.age(), longestWindow)
}

// age is the longest that the stream keeps a message, with anyAgeWindow for
// any.
func (o Options) age() time.Duration {
	if o.Keep.Messages == 0 || o.Keep.Age <= 0 {
		return anyAgeWindow
	}
	return max(o.Keep.Age, shortestAge)
}

// perChannel is how many messages the stream keeps of each.
func (o Options) perChannel() int64 { return int64(max(o.Keep.Messages, 1)) }

// config is the stream that we want.
func (o Options) config() jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name:              o.Name,
		Subjects:          []string{o.Name + ".in.>"},
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardOld,
		Storage:           jetstream.FileStorage,
		Replicas:          o.Replicas,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgSize:        -1,
		MaxMsgsPerSubject: o.perChannel(),
		Duplicates:        o.duplicates(),
		RePublish:         &jetstream.RePublish{Source: o.Name + ".in.>", Destination: o.Name + ".out.>"},
		// Only the stream's leader is asked: one that lags would say that
		// nothing was missed.
		AllowDirect: false,
	}
	if o.Keep.Messages == 0 || o.Keep.Age > 0 {
		c.MaxAge = o.age()
	}
	if o.Keep.Bytes > 0 {
		c.MaxBytes = o.Keep.Bytes
	}
	if o.Keep.Channels > 0 {
		c.MaxMsgs = int64(o.Keep.Channels) * c.MaxMsgsPerSubject
	}
	return c
}

// info is what is known of the stream, and of one channel in it.
type info struct {
	epoch       string
	first, last uint64
	limits      uint64 // the last number when the limits were widened
	perChannel  int64
	kept        uint64 // messages of the channel that was asked for
	config      jetstream.StreamConfig
}

// remarks reads the stream's description. A description that somebody else wrote has
// no effect.
func remarks(description string) (limits uint64, token string) {
	if _, err := fmt.Sscanf(description, remark, &limits, &token); err != nil {
		return 0, ""
	}
	return limits, token
}

type infoAnswer struct {
	Error *jetstream.APIError `json:"error"`
	jetstream.StreamInfo
}

func newInfo(i jetstream.StreamInfo, subject string) info {
	limits, token := remarks(i.Config.Description)
	return info{
		epoch:      strconv.FormatInt(i.Created.UnixNano(), 36) + token,
		first:      i.State.FirstSeq,
		last:       i.State.LastSeq,
		limits:     limits,
		perChannel: i.Config.MaxMsgsPerSubject,
		kept:       i.State.Subjects[subject],
		config:     i.Config,
	}
}

// request asks the JetStream API.
func (b *Bus) request(ctx context.Context, what string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("asking %s: %w", what, err)
	}
	began := time.Now()
	m, err := b.nc.RequestWithContext(ctx, "$JS.API."+what, body)
	b.meters.Call(began, err != nil && !errors.Is(err, context.Canceled))
	if errors.Is(err, nats.ErrNoResponders) {
		return errors.New("JetStream is not enabled there: start the server with nats-server -js -sd FOLDER")
	}
	if err != nil {
		return fmt.Errorf("asking %s: %w", what, err)
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", what, err)
	}
	return nil
}

// info asks for the stream, and if a channel is given, for what it has of it.
func (b *Bus) info(ctx context.Context, token string) (info, error) {
	var question struct {
		Subjects string `json:"subjects_filter,omitempty"`
	}
	subject := ""
	if token != "" {
		subject = b.in(token)
		question.Subjects = subject
	}
	var answer infoAnswer
	if err := b.request(ctx, "STREAM.INFO."+b.o.Name, question, &answer); err != nil {
		return info{}, err
	}
	if answer.Error != nil {
		return info{}, fmt.Errorf("the stream %s: %w", b.o.Name, answer.Error)
	}
	return newInfo(answer.StreamInfo, subject), nil
}

// infos shares one request between all who ask for the stream at the same time.
type infos struct {
	mu   sync.Mutex
	busy bool
	next *infoCall // begins when the one under way has ended
}

type infoCall struct {
	done chan struct{}
	info info
	err  error
}

// share returns the state of the stream at a moment after the call.
func (b *Bus) share(ctx context.Context) (info, error) {
	b.infos.mu.Lock()
	f := b.infos.next
	lead := f == nil
	if lead {
		f = &infoCall{done: make(chan struct{})}
		b.infos.next = f
	}
	if lead && !b.infos.busy {
		b.infos.busy = true
		b.asking.Go(b.fly) // Close waits for it; we are in asking, so it is not over
	}
	b.infos.mu.Unlock()
	select {
	case <-f.done:
		return f.info, f.err
	case <-ctx.Done():
		return info{}, ctx.Err()
	}
}

// fly asks as long as somebody waits.
func (b *Bus) fly() {
	for {
		b.infos.mu.Lock()
		f := b.infos.next
		b.infos.next = nil
		b.infos.busy = f != nil
		b.infos.mu.Unlock()
		if f == nil {
			return
		}
		ctx, cancel := context.WithTimeout(b.ctx, askTimeout)
		f.info, f.err = b.info(ctx, "")
		cancel()
		close(f.done)
	}
}

// ensure makes the stream, or changes it to what we want.
func (b *Bus) ensure(ctx context.Context, look time.Duration) (info, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	want := b.o.config()
	looking, looked := context.WithTimeout(ctx, look)
	s, err := b.js.Stream(looking, b.o.Name)
	looked()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		want.Replicas = max(want.Replicas, 1)
		want.Description = fmt.Sprintf(remark, 0, rand.Text()[:6])
		s, err = b.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another machine was quicker
			s, err = b.js.Stream(ctx, b.o.Name)
		}
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return info{}, fmt.Errorf("%w: NATS at %s runs without JetStream: start it with nats-server -js -sd FOLDER", bus.ErrDown, b.Server())
	case err != nil:
		return info{}, fmt.Errorf("%w: making the stream %s: %w", bus.ErrDown, b.o.Name, b.advise(err))
	}
	have := newInfo(*s.CachedInfo(), "")
	want.Description = have.config.Description
	if b.o.Replicas == 0 { // it may have been given more by hand
		want.Replicas = have.config.Replicas
	}
	if alike(have.config, want) {
		return have, nil
	}
	if wider(have.config, want) {
		// What was dropped under the old limits would else seem never to have
		// been there.
		want.Description = describe(have.config.Description, have.last)
	}
	return b.update(ctx, want)
}

func (b *Bus) update(ctx context.Context, want jetstream.StreamConfig) (info, error) {
	s, err := b.js.UpdateStream(ctx, want)
	if err != nil {
		return info{}, fmt.Errorf("%w: changing the stream %s: %w", bus.ErrDown, b.o.Name, b.advise(err))
	}
	return newInfo(*s.CachedInfo(), ""), nil
}

// What a server answers that has not enough others for the replicas of a stream.
const (
	noPeers   jetstream.ErrorCode = 10005
	noCluster jetstream.ErrorCode = 10074
)

// advise says what to do about an error of the server.
func (b *Bus) advise(err error) error {
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && b.o.Replicas > 1 && (refused.ErrorCode == noPeers || refused.ErrorCode == noCluster) {
		return fmt.Errorf("%w: %d replicas need as many servers of one cluster with JetStream; see that they run, or set fewer", err, b.o.Replicas)
	}
	return err
}

// describe changes the remark to other limits.
func describe(old string, last uint64) string {
	_, token := remarks(old)
	return fmt.Sprintf(remark, last, cmp.Or(token, rand.Text()[:6]))
}

// renew gives the stream another epoch.
func (b *Bus) renew(ctx context.Context, i info) (info, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	i.config.Description = fmt.Sprintf(remark, i.last, rand.Text()[:6])
	return b.update(ctx, i.config)
}

// alike reports whether a stream needs no change.
func alike(have, want jetstream.StreamConfig) bool {
	return have.MaxMsgsPerSubject == want.MaxMsgsPerSubject && have.MaxAge == want.MaxAge && have.MaxBytes == want.MaxBytes &&
		have.MaxMsgs == want.MaxMsgs && have.Duplicates == want.Duplicates && have.Replicas == want.Replicas &&
		have.RePublish != nil && have.RePublish.Destination == want.RePublish.Destination && !have.AllowDirect
}

// wider reports whether the stream is to keep more of a channel than before.
func wider(have, want jetstream.StreamConfig) bool {
	return want.MaxMsgsPerSubject > have.MaxMsgsPerSubject
}

// order is what this machine knows of the stream's order.
type order struct {
	mu     sync.Mutex
	epoch  string
	high   uint64 // the highest number seen
	looked uint64 // the stream's last number at the last look
	known  bool   // this machine has been in step once
}

// enter adopts an epoch. It reports whether there was another one.
func (o *order) enter(epoch string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.epoch == epoch {
		return false
	}
	first := o.epoch == ""
	o.epoch = epoch
	if first {
		return false
	}
	o.high, o.looked, o.known = 0, 0, true
	return true
}

func (o *order) current() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.epoch
}

// saw notes a number.
func (o *order) saw(seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.high = max(o.high, seq)
}

// highest is the highest number seen. A later look at the stream that finds less shows
// that the stream went back.
func (o *order) highest() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.high
}

// settle notes the stream's last number at a look, and returns that of the look
// before. Whatever the server had published by then has come by now, over a connection
// that was not lost in between.
func (o *order) settle(last uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.looked
	o.high = max(o.high, last)
	o.looked = last
	return before
}

// caughtUp says that everything up to there was delivered.
func (o *order) caughtUp(last uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.high = max(o.high, last)
	o.looked, o.known = last, true
}

// inStep reports whether this machine was ever caught up.
func (o *order) inStep() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known
}
