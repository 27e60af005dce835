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

// Beginning is an [Options].From that has Message called with all messages that are
// still kept, and then with those to come. lost comes first when there were so
// many that older ones may be gone.
const Beginning = "beginning"

// field holds a message; an entry without it is only a place to go on from.
const field = "m"

func (r *Redis) stream() string { return r.o.Prefix + "messages" }

// Publish sends a message to all machines. It returns once Redis has it, or
// ErrDown: then the others may not hear of it. A message has 32 KiB at most.
func (r *Redis) Publish(ctx context.Context, message []byte) error {
	if len(message) > mostMessage {
		return fmt.Errorf("publishing to redis: a message of %d bytes, at most %d are possible", len(message), mostMessage)
	}
	if _, err := r.add(ctx, field, message); err != nil {
		return fmt.Errorf("publishing to redis: %w", err)
	}
	return nil
}

func (r *Redis) add(ctx context.Context, field string, value []byte) (id string, err error) {
	key := r.stream()
	err = r.call(ctx, key, func(ctx context.Context, l *link) (err error) {
		id, err = l.write.Do(ctx, l.write.B().Xadd().Key(key).Maxlen().Almost().Threshold(strconv.Itoa(streamLength)).
			Id("*").FieldValue().FieldValue(field, rueidis.BinaryString(value)).Build()).ToString()
		return err
	})
	return id, err
}

// Position is the position of the last message that Message was called with, for
// Options.From of a later run. It is From until Redis was reached.
func (r *Redis) Position() string { return *r.position.Load() }

// errLost tells that the messages after a position are not all there any more.
var errLost = errors.New("messages were lost")

// listen hands messages on until Close, which waits for it.
func (r *Redis) listen() {
	var pause backoff
	at, lost := r.o.From, false
	replay := at == Beginning
	if replay {
		at = ""
	}
	if at != "" && !isPosition(at) {
		at, lost = "", true // what was kept is damaged
	}
	for r.closing.Err() == nil {
		next, err := r.follow(at, lost)
		if err == nil && replay {
			if err = r.replay(next); err == nil {
				replay = false
			}
		}
		switch {
		case errors.Is(err, errLost):
			at, lost = "", true
		case err == nil:
			at, lost = next, false
			pause.reset()
		default:
			sleep(r.closing, pause.next(), nil)
		}
	}
}

// replay calls Message with what is kept from before a position.
func (r *Redis) replay(until string) error {
	key := r.stream()
	var kept int64
	err := r.call(r.closing, key, func(ctx context.Context, l *link) (err error) {
		kept, err = l.read.Do(ctx, l.read.B().Xlen().Key(key).Build()).AsInt64()
		return err
	})
	if err != nil {
		return err
	}
	if kept >= streamLength { // older ones may have been trimmed
		r.o.Message(nil, true)
	}
	for from := "-"; r.closing.Err() == nil; {
		var entries []rueidis.XRangeEntry
		err := r.call(r.closing, key, func(ctx context.Context, l *link) (err error) {
			entries, err = l.read.Do(ctx, l.read.B().Xrange().Key(key).Start(from).End(until).Count(batch).Build()).AsXRange()
			return err
		})
		if err != nil {
			return err
		}
		for _, e := range entries {
			if message, ok := e.FieldValues[field]; ok {
				r.o.Message([]byte(message), false)
			}
			from = "(" + e.ID
		}
		if len(entries) < batch {
			return nil
		}
	}
	return r.closing.Err()
}

// isPosition reports whether Redis would read text as an entry's id.
func isPosition(text string) bool {
	ms, seq, ok := strings.Cut(text, "-")
	_, err1 := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(seq, 10, 64)
	return ok && err1 == nil && err2 == nil
}

// follow takes one step from a position: it finds one to begin at, delivers what is
// behind it, or waits for something. It returns the next position.
func (r *Redis) follow(at string, lost bool) (string, error) {
	if at == "" {
		// An entry of our own is where we begin: as long as it is there, nothing
		// after it was trimmed, for trimming begins with the oldest.
		id, err := r.add(r.closing, "from", nil)
		if err != nil {
			return "", err
		}
		r.position.Store(&id)
		if lost {
			r.o.Message(nil, true)
		}
		return id, nil
	}
	entries, err := r.after(at)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if r.closing.Err() != nil {
			return at, nil
		}
		at = e.ID
		r.position.Store(&e.ID)
		if message, ok := e.FieldValues[field]; ok {
			r.o.Message([]byte(message), false)
		}
	}
	if len(entries) > 0 {
		return at, nil
	}
	return at, r.await(at)
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

// await returns when there may be something after a position. It uses a
// connection of its own, and does not count for health: calls do.
func (r *Redis) await(position string) error {
	if !r.health.up() {
		return store.ErrClosed
	}
	l := r.link.Load()
	ctx, cancel := context.WithTimeout(r.closing, blockFor+r.o.Timeout+time.Second)
	defer cancel()
	err := l.read.Do(ctx, l.read.B().Xread().Count(1).Block(blockFor.Milliseconds()).Streams().Key(r.stream()).Id(position).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}
