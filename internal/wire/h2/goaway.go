package h2

// maxStreamID is the highest number of a stream (RFC 9113, 5.1.1).
const maxStreamID = 1<<31 - 1

// Warn sends a first GOAWAY: the client shall open no more streams; those that are on
// their way are still answered (RFC 9113, 6.8). It may wait for the client to read, but not on
// a loop, which alone may call it then.
func (c *Conn) Warn() {
	c.goaway.mu.Lock()
	again := c.goaway.warned || c.goaway.final
	c.goaway.warned = true
	c.goaway.mu.Unlock()
	if !again {
		c.writeGoaway(maxStreamID)
	}
}

// Shutdown sends the last GOAWAY: streams that have not come by now are not answered,
// the others end normally. It may wait for the client to read.
func (c *Conn) Shutdown() {
	c.goaway.mu.Lock()
	again := c.goaway.final
	c.goaway.final, c.goaway.limit = true, c.lastOpened.Load()
	limit := c.goaway.limit
	c.goaway.mu.Unlock()
	if !again {
		c.writeGoaway(limit)
	}
}

// IsShut reports whether Shutdown was called.
func (c *Conn) IsShut() bool {
	c.goaway.mu.Lock()
	defer c.goaway.mu.Unlock()
	return c.goaway.final
}

func (c *Conn) writeGoaway(limit uint32) {
	c.w.mu.lock()
	var b []byte
	if !c.w.settingsSent { // SETTINGS come first (RFC 9113, 3.4); a second time they change nothing
		c.w.settingsSent = true
		b = append(appendHead(b, head{length: len(c.o.Settings), kind: frameSettings}), c.o.Settings...)
	}
	_, _ = c.host.Write(appendGoaway(b, limit, codeNo)) // Run returns the error of its next write
	c.w.mu.unlock()
}

// limitTo notes net/http's GOAWAY: it answers no stream beyond last. It returns the
// stream for the client's GOAWAY, since the host may have answered later ones.
func (c *Conn) limitTo(last uint32) uint32 {
	c.goaway.mu.Lock()
	defer c.goaway.mu.Unlock()
	last = max(last, c.lastAnswered.Load())
	if c.goaway.final {
		last = min(last, c.goaway.limit) // it never grows (RFC 9113, 6.8)
	}
	c.goaway.final, c.goaway.limit = true, last
	return last
}
