package frame

// Walker follows a stream of frames that is passed on as it is, and knows where
// one ends: only there may another frame be put in. It looks at headers only
// and copies nothing; the zero value is ready.
type Walker struct {
	header [MaxHeader]byte // the beginning of one that is not whole yet
	have   uint8
	closed bool
	left   int64 // of the payload
}

// Walk takes the next bytes. It returns how many data frames (not control
// frames) ended in them, and an *Error if they are no frames; what follows is then not to be trusted.
func (w *Walker) Walk(b []byte) (frames int, err error) { panic("not built") }

// Between reports whether the stream stands between two frames.
func (w *Walker) Between() bool { panic("not built") }

// Closed reports whether a close frame has gone by.
func (w *Walker) Closed() bool { panic("not built") }
