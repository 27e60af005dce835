package h2

import "encoding/binary"

// innerFrame is the largest frame size that net/http gets in SETTINGS, so that it writes
// this much at once. Conn cuts it to the frames that the client takes. A larger one would
// delay the other streams.
const innerFrame = 256 << 10

// settingsFrame handles the client's SETTINGS.
func (c *Conn) settingsFrame(t *task, h head, p []byte) error {
	switch {
	case h.id != 0:
		return c.fail(t, codeProtocol)
	case h.has(flagAck) && len(p) != 0, len(p)%6 != 0:
		return c.fail(t, codeFrameSize)
	case h.has(flagAck):
		return nil // of ours: net/http's are not sent
	}
	before := c.run.settings
	for rest := p; len(rest) > 0; rest = rest[6:] {
		id, v := binary.BigEndian.Uint16(rest), binary.BigEndian.Uint32(rest[2:])
		if why := c.run.settings.set(id, v); why != codeNo {
			return c.fail(t, why)
		}
	}
	by := int64(c.run.settings.window) - int64(before.window)
	if by != 0 {
		if !c.shiftForwarded(by) {
			return c.fail(t, codeFlowControl)
		}
		if err := c.sendPending(); err != nil {
			return err
		}
	}
	c.frame.Store(c.run.settings.frame)
	if by != 0 && !c.flows.shiftWindows(by) {
		return c.fail(t, codeFlowControl)
	}
	if !c.flows.settings(c.inner.Load()) {
		c.tableMost.Store(c.run.settings.table)
		t.out = appendHead(t.out, head{kind: frameSettings, flags: flagAck})
		return nil
	}
	// Net/http changes its encoder's table while another goroutine may be encoding a
	// header block with it, which can end the process. So it gets the table's size
	// before its first stream and not again.
	if c.run.settings.table < before.table {
		return c.fail(t, codeInternal)
	}
	at := len(t.toInner)
	t.toInner = append(appendHead(t.toInner, h), p...)
	for b := t.toInner[at+frameHead:]; len(b) > 0; b = b[6:] {
		switch binary.BigEndian.Uint16(b) {
		case settingMaxFrameSize:
			binary.BigEndian.PutUint32(b[2:], innerFrame)
		case settingHeaderTableSize:
			binary.BigEndian.PutUint16(b, settingUnknown)
		}
	}
	return nil
}

// set stores one setting, or returns the error code for it.
func (s *clientSettings) set(id uint16, v uint32) code {
	switch id {
	case settingHeaderTableSize:
		s.table = min(s.table, v)
		v = s.table
	case settingEnablePush:
		if v > 1 {
			return codeProtocol
		}
	case settingInitialWindow:
		if v > maxWindow {
			return codeFlowControl
		}
		s.window = v
	case settingMaxFrameSize:
		if v < 16<<10 || v > 1<<24-1 {
			return codeProtocol
		}
		s.frame = v
	}
	if int(id) < len(s.raw) {
		s.raw[id], s.sent = v, s.sent|1<<id
	}
	return codeNo
}

// appendTo appends all of the client's settings as one frame for net/http.
func (s *clientSettings) appendTo(b []byte) []byte {
	at := len(b)
	b = appendHead(b, head{kind: frameSettings})
	for id, v := range s.raw {
		if s.sent&(1<<id) != 0 && id != settingMaxFrameSize {
			b = appendSetting(b, uint16(id), v)
		}
	}
	b = appendSetting(b, settingMaxFrameSize, innerFrame)
	setLength(b[at:], len(b)-at-frameHead)
	return b
}
