package accesslog

import "time"

// clock formats a time in the machine's zone once a second. The zero value is
// ready; it serves one format only and one goroutine at a time.
type clock struct {
	second int64 // of what is in text
	text   []byte
	zone   int // where the zone begins in text
	store  [len(commonLayout) + len(dateLayout) + len(zoneLayout)]byte
}

const (
	commonLayout = "02/Jan/2006:15:04:05 -0700"
	dateLayout   = "2006-01-02T15:04:05"
	zoneLayout   = "Z07:00"

	// Years have four digits in every format. The margin is for zones.
	firstSecond = 24 * 60 * 60
	lastSecond  = 253402300799 - firstSecond
)

// common is the time as in 02/Jan/2006:15:04:05 -0700.
func (c *clock) common(t time.Time) []byte {
	if local, changed := c.tick(t); changed {
		c.text = local.AppendFormat(c.store[:0], commonLayout)
	}
	return c.text
}

// rfc3339 is the time as in 2006-01-02T15:04:05 and its zone; between them is
// room for a fraction.
func (c *clock) rfc3339(t time.Time) (date, zone []byte) {
	if local, changed := c.tick(t); changed {
		c.text = local.AppendFormat(c.store[:0], dateLayout)
		c.zone = len(c.text)
		c.text = local.AppendFormat(c.text, zoneLayout)
	}
	return c.text[:c.zone], c.text[c.zone:]
}

// tick reports whether t is in another second than the time before.
func (c *clock) tick(t time.Time) (local time.Time, changed bool) {
	second := min(max(t.Unix(), firstSecond), lastSecond)
	if second == c.second {
		return time.Time{}, false
	}
	c.second = second
	return time.Unix(second, 0), true
}
