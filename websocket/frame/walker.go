package frame

// Walker follows a stream of frames that is passed on as it is, and knows where
// one ends: only there may another frame be put in. It looks at headers only
// and copies nothing; the zero value is ready. It takes what [Parse] takes, and
// does not know which frame may follow which.
type Walker struct {
	header [MaxHeader]byte // the beginning of one that is not whole yet
	have   uint8           // bytes of it
	flags  uint8
	left   int64 // of the payload, in bytes
}

const (
	inData     = 1 << iota // the frame under way is a data frame
	inClose                // it is a close frame
	sawClose               // a close frame has gone by
	lostItsWay             // an error was returned
)

// Walk takes the next bytes. It returns how many data frames (not control
// frames) ended in them, and an *Error if they are not frames; what follows is
// then not to be trusted: every further call fails, and nothing may be put in
// any more.
func (w *Walker) Walk(b []byte) (frames int, err error) {
	if w.flags&lostItsWay != 0 {
		return 0, &Error{ProtocolError, "bytes behind a broken frame"}
	}
	for {
		if w.left > 0 {
			if int64(len(b)) < w.left {
				w.left -= int64(len(b))
				return frames, nil
			}
			b = b[w.left:]
			w.left = 0
			frames += w.ended()
		}
		if len(b) == 0 {
			return frames, nil
		}
		h, n, err := w.next(b)
		if err != nil {
			w.flags |= lostItsWay
			return frames, err
		}
		if n < 0 {
			return frames, nil
		}
		b = b[n:]
		switch {
		case !h.Op.IsControl():
			w.flags |= inData
		case h.Op == Close:
			w.flags |= inClose
		}
		if w.left = h.Length; w.left == 0 {
			frames += w.ended()
		}
	}
}

// next parses a header of which the beginning may have been kept. n is how many
// bytes of b belong to it, and -1 if it does not end in b, which is kept then.
func (w *Walker) next(b []byte) (h Header, n int, err error) {
	if w.have == 0 {
		if h, n, err = Parse(b); n == 0 && err == nil {
			w.have = uint8(copy(w.header[:], b)) // all of b: it is not a whole header
			n = -1
		}
		return h, n, err
	}
	more := copy(w.header[w.have:], b)
	h, n, err = Parse(w.header[:int(w.have)+more])
	if n == 0 {
		w.have += uint8(more) // again all of b
		return h, -1, err
	}
	n -= int(w.have)
	w.have = 0
	return h, n, err
}

// ended takes note of the end of a frame, and returns how many data frames that
// were: one or none.
func (w *Walker) ended() (frames int) {
	if w.flags&inClose != 0 {
		w.flags |= sawClose
	}
	if w.flags&inData != 0 {
		frames = 1
	}
	w.flags &^= inData | inClose
	return frames
}

// Between reports whether the stream stands between two frames.
func (w *Walker) Between() bool { return w.left == 0 && w.have == 0 && w.flags&lostItsWay == 0 }

// Closed reports whether a close frame has gone by, to its last byte.
func (w *Walker) Closed() bool { return w.flags&sawClose != 0 }
