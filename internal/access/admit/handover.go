package admit

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"
)

// What a table knows is written as a version, the key of its hashes, the number of
// clients that are counted, each with its hash and how many seconds it is ahead,
// and then the same of those that are caught.
const (
	saveVersion = 1
	savedClient = 8 + 4 // bytes: a hash, and seconds as a float32
	savedHead   = 1 + 2*8 + 4
	// mostSaved is how many clients are written, 3 MB: those that are the furthest
	// ahead of their rates, where there are more.
	mostSaved = 1 << 18
)

// saved is one client.
type saved struct {
	hash uint64
	left time.Duration
}

// Save is what limits have counted and who is caught, for a process that takes
// over from this one: [Restore] has it.
func (t *Table) Save(now time.Time) []byte {
	at := int64(now.Sub(t.start))
	var counted []saved
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, c := range s.cells {
			if c.key != 0 && c.due > at {
				counted = append(counted, saved{c.key, time.Duration(c.due - at)})
			}
		}
		s.mu.Unlock()
	}
	if len(counted) > mostSaved {
		slices.SortStableFunc(counted, func(a, b saved) int { return cmp.Compare(b.left, a.left) })
		counted = counted[:mostSaved]
	}
	b := make([]byte, 0, savedHead+len(counted)*savedClient+4)
	b = append(b, saveVersion)
	b = binary.BigEndian.AppendUint64(b, t.key[0])
	b = binary.BigEndian.AppendUint64(b, t.key[1])
	return appendSaved(appendSaved(b, counted), t.caught.all(at/int64(time.Second)))
}

func appendSaved(b []byte, list []saved) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, c := range list {
		b = binary.BigEndian.AppendUint64(b, c.hash)
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(float32(c.left.Seconds())))
	}
	return b
}

// errState is for a state that another version has written, or nobody.
var errState = errors.New("what rate limits have counted cannot be read: it is of another version")

// Restore is a table that goes on where another process's has stopped.
func Restore(state []byte) (*Table, error) {
	if len(state) < savedHead || state[0] != saveVersion {
		return nil, errState
	}
	t := NewTable()
	t.key = [2]uint64{binary.BigEndian.Uint64(state[1:]), binary.BigEndian.Uint64(state[9:])}
	counted, rest, err := readSaved(state[17:])
	if err != nil {
		return nil, err
	}
	caught, _, err := readSaved(rest)
	if err != nil {
		return nil, err
	}
	for _, c := range counted {
		if s := t.of(c.hash); c.hash != 0 {
			s.put(s.find(c.hash), c.hash, 0, int64(c.left))
		}
	}
	for _, c := range caught {
		t.caught.add(c.hash, 0, 1+int64(c.left/time.Second))
	}
	return t, nil
}

func readSaved(b []byte) (list []saved, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errState
	}
	n := int(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n > mostSaved || len(b) < n*savedClient {
		return nil, nil, errState
	}
	for range n {
		left := float64(math.Float32frombits(binary.BigEndian.Uint32(b[8:])))
		if !(left >= 0 && left < mostAhead.Seconds()) {
			return nil, nil, errState
		}
		list = append(list, saved{binary.BigEndian.Uint64(b), time.Duration(left * float64(time.Second))})
		b = b[savedClient:]
	}
	return list, b, nil
}

// mostAhead is more than any client can be ahead: a clock's whole range.
const mostAhead = math.MaxInt64 / 2 * time.Nanosecond
