package frame

import "iter"

const (
	// stepIn and stepOut are how much of a message is read, or comes out of it,
	// in one step of an Inflation: some tenths of a millisecond.
	stepIn  = 4 << 10
	stepOut = 64 << 10
	// thinFrom and thinRatio refuse messages that are nearly nothing but blocks
	// without content, whose headers are a hundred times as dear as content:
	// behind thinFrom bytes, a sixteenth of what was read must have come out.
	// What cannot be compressed comes out whole, and of a sender that flushes
	// behind every byte an eighth.
	thinFrom  = 64 << 10
	thinRatio = 16
	// windowSize is how far back DEFLATE may refer (RFC 1951, 2).
	windowSize = 32 << 10
)

// Inflation decompresses one message in steps. It must be stopped, or done.
type Inflation struct {
	compressed *Pieces
	limit      int64
	take       func(n int) bool
	out        Pieces

	read, quota int // bytes read so far, and those that end the step
	filled      int // bytes of out when the step began
	yield       func(struct{}) bool
	next        func() (struct{}, bool)
	stop        func()
	err         error
}

// NewInflation begins to decompress a message into at most limit bytes.
// compressed stays the caller's, and must not change until the end. take is asked before memory is
// taken, in bytes; where it says no, the message is refused with TryAgainLater.
// What was taken stays with the caller to give back.
func NewInflation(compressed *Pieces, limit int64, take func(n int) bool) *Inflation {
	x := &Inflation{compressed: compressed, limit: limit, take: take}
	x.next, x.stop = iter.Pull(x.run)
	return x
}

// run is the coroutine. It yields between steps.
func (x *Inflation) run(yield func(struct{}) bool) {
	x.yield, x.quota = yield, stepIn
	if x.compressed.size > 0 {
		i := inflaters.Get().(*inflater)
		x.err = i.run(x, source{parts: x.compressed.from(0), trailer: trailer, pause: x.pause}, x.limit)
		inflaters.Put(i)
	}
}

// Step does a part of the work, and reports whether all is done.
func (x *Inflation) Step() (done bool) {
	_, more := x.next()
	return !more
}

// Stop ends it early, and gives its memory back.
func (x *Inflation) Stop() {
	x.stop()
	x.drop()
}

// Result returns the message when all is done. dst is used if it is large
// enough; compressed is not needed any more.
func (x *Inflation) Result(dst []byte) ([]byte, error) {
	defer x.drop()
	if x.err != nil {
		return nil, x.err
	}
	if cap(dst) < x.out.size {
		if !x.take(x.out.size) {
			return nil, errMemory()
		}
		dst = make([]byte, 0, x.out.size)
	}
	return x.out.appendTo(dst[:0], 0), nil
}

func (x *Inflation) drop() {
	x.out.Free()
	x.compressed = nil
}

// pause is called before n more bytes are read.
func (x *Inflation) pause(n int) error {
	if x.read >= thinFrom && x.out.size+windowSize < x.read/thinRatio {
		return &Error{PolicyViolation, "the message is compressed into blocks without content"}
	}
	defer func() { x.read += n }()
	if x.read >= x.quota {
		return x.endStep()
	}
	return nil
}

// endStep ends a step.
func (x *Inflation) endStep() error {
	if !x.yield(struct{}{}) {
		return &Error{GoingAway, "it was stopped"}
	}
	x.quota, x.filled = x.read+stepIn, x.out.size
	return nil
}

// space implements output.
func (x *Inflation) space() ([]byte, error) {
	if x.out.full() {
		if x.out.size-x.filled >= stepOut {
			if err := x.endStep(); err != nil {
				return nil, err
			}
		}
		if !x.out.grow(x.take) {
			return nil, errMemory()
		}
	}
	return x.out.space(), nil
}

func (x *Inflation) wrote(n int) { x.out.size += n }

// window implements output.
func (x *Inflation) window() []byte {
	n := min(windowSize, x.out.size)
	return x.out.appendTo(make([]byte, 0, n), x.out.size-n)
}

func errMemory() error {
	return &Error{TryAgainLater, "too much is held for unfinished messages"}
}
