package upstream

// records walks along the records of TLS (RFC 8446, 5.1) without reading what is
// in them: where one begins, and what kind it seems to be. The zero value has
// seen nothing, and stays so over plain connections.
type records struct {
	head [recordHead]byte
	have int // bytes of head
	left int // bytes of the record that are still to come
}

const (
	// recordHead is the type, the version and the length of a record.
	recordHead = 5
	// typeAlert is the type of an alert before TLS 1.3, where it is told from data
	// by its length alone: level, description, the type and 16 bytes of the cipher.
	typeAlert   = 21
	sealedAlert = 2 + 1 + 16
)

// walk takes in what was read.
func (r *records) walk(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(r.left, len(b))
			r.left -= n
			b = b[n:]
			continue
		}
		if r.have == recordHead {
			r.have = 0
		}
		n := copy(r.head[r.have:], b)
		r.have += n
		b = b[n:]
		if r.have == recordHead {
			r.left = r.length()
		}
	}
}

func (r *records) length() int { return int(r.head[3])<<8 | int(r.head[4]) }

// between reports whether no part of a record has come without the rest.
func (r *records) between() bool { return r.left == 0 && r.have%recordHead == 0 }

// goodbye reports whether the last record is most likely an alert: close_notify
// ends a connection properly.
func (r *records) goodbye() bool {
	return r.have == recordHead && (r.head[0] == typeAlert || r.length() == sealedAlert)
}
