package logfile

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"time"
)

// head is what is the same in front of every message of syslog.
type head struct {
	facility int
	fields   string // " HOSTNAME APP-NAME PROCID MSGID STRUCTURED-DATA "
	second   int64
	stamp    [len(stampLayout)]byte
}

const (
	// stampLayout is RFC 5424's TIMESTAMP up to the fraction (6.2.3).
	stampLayout = "2006-01-02T15:04:05"

	// The longest names (RFC 5424, 6).
	maxHostname = 255
	maxAppName  = 48

	nothing = "-" // NILVALUE
)

func newHead(facility int, ident string) head {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	fields := []string{"", token(host, maxHostname), token(ident, maxAppName), strconv.Itoa(os.Getpid()), nothing, nothing, ""}
	return head{facility: facility, fields: strings.Join(fields, " ")}
}

// token makes a name one that a header may have: printable ASCII without spaces.
func token(s string, most int) string {
	s = strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return '_'
		}
		return c
	}, s)
	if s == "" {
		return nothing
	}
	return s[:min(len(s), most)]
}

// append appends the header of a message: <PRI>1 TIMESTAMP HOSTNAME APP-NAME PROCID
// MSGID SD, and a space (RFC 5424, 6).
func (h *head) append(b []byte, severity Severity, now time.Time) []byte {
	now = now.UTC()
	if second := now.Unix(); second != h.second {
		h.second = second
		now.AppendFormat(h.stamp[:0], stampLayout)
	}
	const facilityUnit = 8
	b = append(b, '<')
	b = strconv.AppendInt(b, int64(h.facility*facilityUnit+int(severity)), 10)
	b = append(b, ">1 "...)
	b = append(b, h.stamp[:]...)
	ms := now.Nanosecond() / int(time.Millisecond)
	b = append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
	return append(b, h.fields...)
}

// appendJournal appends an entry of journald's native protocol: a field to a line,
// or, where its value has newlines, its length in front (systemd's
// docs/JOURNAL_NATIVE_PROTOCOL.md).
func appendJournal(b []byte, severity Severity, ident string, text []byte) []byte {
	b = append(b, "PRIORITY="...)
	b = append(b, byte('0'+severity))
	b = append(b, "\nSYSLOG_IDENTIFIER="...)
	b = append(b, token(ident, maxAppName)...)
	if bytes.IndexByte(text, '\n') < 0 {
		b = append(append(b, "\nMESSAGE="...), text...)
	} else {
		b = append(b, "\nMESSAGE\n"...)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(text)))
		b = append(b, text...)
	}
	return append(b, '\n')
}
