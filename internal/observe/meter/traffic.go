package meter

import (
	"sync/atomic"
	"time"
)

// The answers' codes that are counted one by one: IANA's registry and 499,
// which stands for a client that went away. Anything else is code 0.
var knownCodes = [...]int{
	0,
	100, 101, 102, 103, 104,
	200, 201, 202, 203, 204, 205, 206, 207, 208, 226,
	300, 301, 302, 303, 304, 305, 306, 307, 308,
	400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418,
	421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 499,
	500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511,
}

const (
	lowestCode  = 100
	highestCode = 599
)

// slotOf is the place in knownCodes of a code, less lowestCode.
var slotOf = makeSlots()

func makeSlots() (slots [highestCode - lowestCode + 1]uint8) {
	for slot, code := range knownCodes[1:] {
		slots[code-lowestCode] = uint8(slot + 1)
	}
	return slots
}

// Traffic is what one job answered in one lane. The zero value is ready.
type Traffic struct {
	shard [shards]struct {
		codes [len(knownCodes)]atomic.Uint64
		bytes atomic.Uint64
		_     [cacheLine]byte
	}
	latency Histogram
}

// Observe counts one answer: its status code, the body bytes that were sent
// and the time from the request's arrival to the answer's last byte. A
// negative number of bytes or a negative time counts as none.
func (t *Traffic) Observe(shard uint32, code int, bytes int64, d time.Duration) {
	slot := uint8(0)
	if code >= lowestCode && code <= highestCode {
		slot = slotOf[code-lowestCode]
	}
	s := &t.shard[shard&shardMask]
	s.codes[slot].Add(1)
	if bytes > 0 {
		s.bytes.Add(uint64(bytes))
	}
	t.latency.Observe(shard, d)
}

// CodeCount is how many answers had one status code.
type CodeCount struct {
	Code  int // 0 stands for every code that HTTP does not know
	Count uint64
}

// Codes lists the codes that occurred, in ascending order.
func (t *Traffic) Codes() []CodeCount {
	r := Reading{codes: t.codes()}
	return r.Codes()
}

// Requests is the number of answers, whatever their code.
func (t *Traffic) Requests() uint64 {
	r := Reading{codes: t.codes()}
	return r.Requests()
}

// Bytes is the number of body bytes sent.
func (t *Traffic) Bytes() uint64 {
	var n uint64
	for i := range t.shard {
		n += t.shard[i].bytes.Load()
	}
	return n
}

// Latency is the distribution of the answers' times.
func (t *Traffic) Latency() Snapshot { return t.latency.Snapshot() }

func (t *Traffic) codes() (codes [len(knownCodes)]uint64) {
	for i := range t.shard {
		for slot := range codes {
			codes[slot] += t.shard[i].codes[slot].Load()
		}
	}
	return codes
}

// Read is all of it as of now.
func (t *Traffic) Read() Reading {
	return Reading{codes: t.codes(), Bytes: t.Bytes(), Latency: t.Latency()}
}

// Reading is a Traffic that does not change any more. The zero value is empty.
type Reading struct {
	codes   [len(knownCodes)]uint64
	Bytes   uint64
	Latency Snapshot
}

// Merge adds what o holds.
func (r *Reading) Merge(o *Reading) {
	for slot := range o.codes {
		r.codes[slot] += o.codes[slot]
	}
	r.Bytes += o.Bytes
	r.Latency.Merge(&o.Latency)
}

// Since is what came after an earlier reading of the same counters.
func (r *Reading) Since(earlier *Reading) Reading {
	diff := Reading{Bytes: r.Bytes - earlier.Bytes, Latency: r.Latency.Since(&earlier.Latency)}
	for slot := range r.codes {
		diff.codes[slot] = r.codes[slot] - earlier.codes[slot]
	}
	return diff
}

// Codes lists the codes that occurred, in ascending order.
func (r *Reading) Codes() []CodeCount {
	var counts []CodeCount
	for slot, n := range r.codes {
		if n > 0 {
			counts = append(counts, CodeCount{knownCodes[slot], n})
		}
	}
	return counts
}

// Requests is the number of answers, whatever their code.
func (r *Reading) Requests() uint64 { return r.Between(0, highestCode) }

// Between is the number of answers with a code from low to high.
func (r *Reading) Between(low, high int) uint64 {
	var n uint64
	for slot, count := range r.codes {
		if code := knownCodes[slot]; code >= low && code <= high {
			n += count
		}
	}
	return n
}
