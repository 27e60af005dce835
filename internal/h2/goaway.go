package h2

// lastStream is the highest that there may be.
const lastStream = 1<<31 - 1

// Warn tells the client to open no more streams, and goes on with those that are
// on their way (RFC 9113, 6.8). It may wait for the client to read.
func (c *Conn) Warn() {
	c.mu.Lock()
	again := c.warned || c.away
	c.warned = true
	c.mu.Unlock()
	if !again {
		c.sayGoAway(lastStream)
	}
}

// Shutdown tells the client that streams which have not come by now will not be
// answered here, and lets the others end. It may wait for the client to read.
func (c *Conn) Shutdown() {
	c.mu.Lock()
	again := c.away
	c.away, c.limit = true, c.last.Load()
	limit := c.limit
	c.mu.Unlock()
	if !again {
		c.sayGoAway(limit)
	}
}

// IsShut reports whether Shutdown was called.
func (c *Conn) IsShut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away
}

func (c *Conn) sayGoAway(limit uint32) {
	c.wmu.lock()
	var b []byte
	if !c.told { // they come first; that they come twice does no harm (RFC 9113, 3.4)
		c.told = true
		b = append(appendHead(b, head{length: len(c.o.Settings), kind: frameSettings}), c.o.Settings...)
	}
	posted, _ := c.putOut(appendGoAway(b, limit, codeNo)) // Run finds out
	if c.wmu.unlock(); posted {
		c.host.Posted()
	}
}

// leave takes note that net/http answers no stream beyond last, and returns what
// the client is told: the host may have answered later ones.
func (c *Conn) leave(last uint32) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	last = max(last, c.warm.Load())
	if c.away {
		last = min(last, c.limit) // it never grows (RFC 9113, 6.8)
	}
	c.away, c.limit = true, last
	return last
}
