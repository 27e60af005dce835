package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"millrace/store"

	"github.com/redis/rueidis"
)

// Bounds of the stream of messages.
const (
	// streamLength is about how many messages are kept for those who were away.
	streamLength = 10_000
	// mostMessage is the size of a message. A URL to purge has 8 KiB at most.
	mostMessage = 32 << 10
	// batch is how many messages are read at once.
	batch = 128
	// blockFor is how long Redis waits for the next message before it says that
	// there is none: also the time in which a stream that has vanished is noticed.
	blockFor = 5 * time.Second
)

// field holds a message; an entry without it is only a place to go on from. Where
// acknowledge is there, too, all machines say when they have it.
const (
	field       = "m"
	acknowledge = "a"
)

func (r *Redis) stream() string { return r.prefix + "messages" }

// runKey holds the name of the server's run. In a cluster it is on the stream's server:
// what stands in braces decides that.
func (r *Redis) runKey() string { return r.prefix + "{" + r.stream() + "}run" }

// runScript finds the entry with which the server's run begins in the stream, adds it
// where the server is in another run than the key says, and then adds a message, if there
// is one, which all machines acknowledge if there is a third argument. It answers with the
// run, and the message's id. A run ends when the process ends (run_id), and when the server becomes another
// one's replica or is no longer one (master_replid): after both, what was written last
// may be missing. Without the right to INFO nothing is known about runs.
const runScript = `local function info(section, name)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and string.match(text, name .. ':(%w+)')
end
local process, history = info('server', 'run_id'), info('replication', 'master_replid')
local name = process and history and process .. '/' .. history .. '/'
local run = name and redis.call('GET', KEYS[2]) or ''
if name and string.sub(run, 1, #name) ~= name then
  run = name .. redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'run', name)
  redis.call('SET', KEYS[2], run)
end
local id = ''
if ARGV[3] then
  id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'm', ARGV[2], 'a', '1')
elseif ARGV[2] then
  id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'm', ARGV[2])
end
return {run, id}`

// Publish sends a message to all machines. It returns once Redis has it, or
// ErrDown: then the others may not hear of it. A message has 32 KiB at most.
func (r *Redis) Publish(ctx context.Context, message []byte) error {
	_, err := r.publish(ctx, message)
	return err
}

// publish returns the message's id. It takes acknowledge, if all machines are to say when
// they have it.
func (r *Redis) publish(ctx context.Context, message []byte, flags ...string) (id string, err error) {
	if len(message) > mostMessage {
		return "", fmt.Errorf("publishing to redis: a message of %d bytes, at most %d are possible", len(message), mostMessage)
	}
	text := rueidis.BinaryString(message)
	_, id, err = r.run(ctx, append([]string{text}, flags...)...)
	if errors.Is(err, errUnknownRun) {
		fields := []string{field, text}
		for _, f := range flags {
			fields = append(fields, f, "1")
		}
		id, err = r.add(ctx, fields...)
	}
	if err != nil {
		return "", fmt.Errorf("publishing to redis: %w", err)
	}
	return id, nil
}

// errUnknownRun tells that the server does not say in which run it is.
var errUnknownRun = errors.New("the server does not tell its runs apart")

// run names the server's run, and adds a message to the stream behind its beginning, if there
// is one. The name ends with the id of the entry there.
func (r *Redis) run(ctx context.Context, message ...string) (run, id string, err error) {
	key := r.stream()
	err = r.call(ctx, key, func(ctx context.Context, l *link) error {
		args := append([]string{strconv.Itoa(streamLength)}, message...)
		answer, err := r.script.Exec(ctx, l.write, []string{key, r.runKey()}, args).AsStrSlice()
		if refused, ok := rueidis.IsRedisErr(err); ok && (word(refused.Error()) == "NOPERM" || strings.Contains(refused.Error(), "unknown command")) {
			return errUnknownRun
		}
		if err == nil && len(answer) == 2 {
			run, id = answer[0], answer[1]
		}
		return err
	})
	return run, id, err
}

// add adds an entry of fields and values.
func (r *Redis) add(ctx context.Context, fields ...string) (id string, err error) {
	key := r.stream()
	err = r.call(ctx, key, func(ctx context.Context, l *link) (err error) {
		entry := l.write.B().Xadd().Key(key).Maxlen().Almost().Threshold(strconv.Itoa(streamLength)).Id("*").FieldValue()
		for i := 0; i < len(fields); i += 2 {
			entry = entry.FieldValue(fields[i], fields[i+1])
		}
		id, err = l.write.Do(ctx, entry.Build()).ToString()
		return err
	})
	return id, err
}

// errLost tells that the messages after a position are not all there any more.
var errLost = errors.New("messages were lost")

// place is how far the messages have been read.
type place struct {
	run string // of the server; "": not known
	id  string // of the last entry; "": unknown, for those behind it are not all there any more
	// sure: since run was asked for, nothing has gone wrong, and no entry says that another
	// one has begun. To ask costs the server more than a message does.
	sure bool
	// strange is an entry that says so of a run which it is not.
	strange string
}

// listen hands messages on until Close, which waits for it.
func (r *Redis) listen() {
	var pause backoff
	var at place
	for r.closing.Err() == nil {
		round := r.steps.begun.Add(1)
		if err := r.follow(&at); err != nil {
			at.sure = false
			r.lost()
			r.steps.failed.Store(round)
			r.caughtUp.wake()
			sleep(r.closing, contactPause, nil) // however many ask
			sleep(r.closing, pause.next(), r.contact.listen)
			continue
		}
		pause.reset()
	}
}

// follow takes one step: it finds a place to begin at, delivers what is behind it, or
// waits for something.
func (r *Redis) follow(at *place) error {
	if !at.sure {
		run, _, err := r.run(r.closing)
		if err != nil && !errors.Is(err, errUnknownRun) {
			return err
		}
		if run != at.run {
			r.lost()
			r.self.reached("")
			*at = place{run: run, id: run[strings.LastIndexByte(run, '/')+1:]}
			r.o.Began(run)
		}
		at.sure = true
	}
	var err error
	if at.id == "" {
		first, err := r.begin(at.run)
		if err != nil {
			return err
		}
		r.o.Message(nil, true)
		if message, ok := first.FieldValues[field]; ok {
			r.o.Message([]byte(message), false)
		}
		at.id = first.ID
	}
	entries, err := r.after(at.id)
	if errors.Is(err, errLost) {
		r.lost()
		at.id, at.sure = "", false
		return nil
	}
	if err != nil {
		return err
	}
	asked := false
	for _, e := range entries {
		if r.closing.Err() != nil {
			return nil
		}
		if name, ok := e.FieldValues["run"]; ok && at.run != "" && at.run != name+e.ID && at.strange != e.ID {
			r.lost()
			at.sure, at.strange = false, e.ID // another run begins here, unless somebody else has written it
			return nil
		}
		at.id = e.ID
		if message, ok := e.FieldValues[field]; ok {
			r.o.Message([]byte(message), false)
		}
		_, ack := e.FieldValues[acknowledge]
		asked = asked || ack
	}
	r.self.reached(at.id)
	if asked || !r.caughtUp.Load() {
		// Before Heard, so that nobody waits for all machines without this one. If it must
		// not be written, Announce says so.
		if err := r.mark(); err != nil && !refused(err) {
			return err
		}
	}
	if len(entries) < batch {
		r.caughtUp.set(true)
	}
	if len(entries) > 0 {
		return nil
	}
	at.sure, err = r.await(at.id)
	return err
}

// begin returns the entry to begin with where some are missing: the oldest that is there. For
// trimming begins with the oldest, so that none is missing behind it; and if the run's
// beginning was trimmed, all that are left are of the run. Where runs are not known it is an
// entry of our own, at the end.
func (r *Redis) begin(run string) (rueidis.XRangeEntry, error) {
	var entries []rueidis.XRangeEntry
	key := r.stream()
	err := r.call(r.closing, key, func(ctx context.Context, l *link) (err error) {
		entries, err = l.read.Do(ctx, l.read.B().Xrange().Key(key).Start("-").End("+").Count(1).Build()).AsXRange()
		return err
	})
	if err == nil && run != "" && len(entries) > 0 {
		return entries[0], nil
	}
	id, err := r.add(r.closing, "from", "")
	return rueidis.XRangeEntry{ID: id}, err
}

// after reads the entries after a position, or says errLost if there may have
// been others. The entry at the position is read along in one command: if it is
// not there, it was trimmed with perhaps some after it, or the stream is another.
func (r *Redis) after(position string) (entries []rueidis.XRangeEntry, err error) {
	key := r.stream()
	err = r.call(r.closing, key, func(ctx context.Context, l *link) (err error) {
		entries, err = l.read.Do(ctx, l.read.B().Xrange().Key(key).Start(position).End("+").Count(batch+1).Build()).AsXRange()
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(entries) == 0 || entries[0].ID != position:
		return nil, errLost
	}
	return entries[1:], nil
}

// resubscribe ends a wait for messages. Whether nothing was lost is to be found out before
// Get answers again.
func (r *Redis) resubscribe() {
	r.lost()
	ring(r.contact.listen)
	if cancel := r.waiting.Load(); cancel != nil {
		(*cancel)()
	}
}

// await returns when there may be something after a position, and reports whether there is.
// It uses a connection of its own, and does not count for health: calls do.
func (r *Redis) await(position string) (bool, error) {
	ctx, cancel := context.WithTimeout(r.closing, blockFor+r.o.Timeout+time.Second)
	defer cancel()
	r.waiting.Store(&cancel)
	if !r.health.up() || !r.caughtUp.Load() { // after the Store, so that resubscribe is not missed
		return false, store.ErrDown
	}
	l := r.link.Load()
	err := l.read.Do(ctx, l.read.B().Xread().Count(1).Block(blockFor.Milliseconds()).Streams().Key(r.stream()).Id(position).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}
