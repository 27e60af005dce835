package channels

import (
	"encoding/base64"
	"hash/fnv"
	"net/url"
	"strconv"
	"strings"

	"millrace/store/bus"
)

// cursor is how far an event stream has come, in all of its channels. As the id
// of an event it is
//
//	KEY.OFFSET.EPOCH~KEY.OFFSET~…
//
// where KEY stands for the channel's name, OFFSET is written with base 36, and
// an epoch is left out that is the one before. A client sends the latest one
// back (Last-Event-ID) and so goes on in every channel where it was, also if it
// asks for other channels besides.
type cursor []mark

// mark is the place in one channel.
type mark struct {
	key   string
	epoch string // as in an id; "": it has no place yet
	bus.Position
}

const (
	// maxCursor is the longest id that is read: of eventChannels it has 8 KiB,
	// or twice as much if some have epochs of their own.
	maxCursor = 16 << 10
	// keyBytes of a name's hash tell channels apart: with 500 in one stream two
	// have the same once in nine million streams, by chance.
	keyBytes = 5
	// keyLength is the least that a key has in an id.
	keyLength = (keyBytes*8 + 5) / 6
)

func newMark(channel string) mark { return mark{key: channelKey(channel)} }

// channelKey is 7 characters that stand for a channel.
func channelKey(channel string) string {
	h := fnv.New64a()
	h.Write([]byte(channel))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:keyBytes])
}

// disambiguate gives marks whose channels have the same short key a longer one: a
// client may have chosen a channel's name for that collision.
func (c cursor) disambiguate(channels []string) {
	seen := map[string]bool{}
	for i := range c {
		if seen[c[i].key] {
			c[i].key = base64.RawURLEncoding.EncodeToString([]byte(channels[i]))
		}
		seen[c[i].key] = true
	}
}

// move sets the mark to a position.
func (m *mark) move(p bus.Position) {
	if m.epoch == "" || p.Epoch != m.Epoch {
		// A dot and a tilde are what an id is made of.
		m.epoch = strings.NewReplacer(".", "%2E", "~", "%7E").Replace(url.QueryEscape(p.Epoch))
	}
	m.Position = p
}

// appendTo writes the id.
func (c cursor) appendTo(b []byte) []byte {
	before, some := "", false
	for i := range c {
		m := &c[i]
		if m.epoch == "" {
			continue
		}
		if some {
			b = append(b, '~')
		}
		b = append(append(b, m.key...), '.')
		b = strconv.AppendUint(b, m.Offset, 36)
		if m.epoch != before {
			b = append(append(b, '.'), m.epoch...)
		}
		before, some = m.epoch, true
	}
	return b
}

// parseCursor reads an id: places by the channels' keys. It stops at what it does
// not understand; whole says that there was nothing such.
func parseCursor(text string) (places map[string]bus.Position, whole bool) {
	if text == "" || len(text) > maxCursor {
		return nil, text == ""
	}
	places = map[string]bus.Position{}
	epoch := ""
	for entry := range strings.SplitSeq(text, "~") {
		key, rest, ok := strings.Cut(entry, ".")
		offset, escaped, own := strings.Cut(rest, ".")
		if own {
			var err error
			if epoch, err = url.QueryUnescape(escaped); err != nil {
				return places, false
			}
		}
		n, err := strconv.ParseUint(offset, 36, 64)
		if !ok || len(key) < keyLength || err != nil || epoch == "" {
			return places, false
		}
		places[key] = bus.Position{Epoch: epoch, Offset: n}
	}
	return places, true
}
