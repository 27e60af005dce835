package field

// This file says what the name of a request's header field stands for, however
// it is spelled: is it a claim about the client, a trace of a proxy, an order
// to answer another question than the one that was asked?
//
// Programs behind a gateway interface get header fields as environment
// variables, in which letter case and the difference between - and _ are lost
// (RFC 3875, 4.1.18); some gateways write _ for every character that is neither
// letter nor digit. To them X_Forwarded_For and X.Forwarded.For are
// X-Forwarded-For. So whoever removes or replaces a field has to mean all of
// its spellings, and compares names folded: see [Fold].

// Fold is a field name in the one spelling that stands for all those which an
// upstream may take for it: in lower case, with - for whatever is neither
// letter nor digit.
func Fold(name string) string {
	if folded(name) {
		return name
	}
	return string(appendFold(make([]byte, 0, len(name)), name))
}

// Plain reports whether a name has letters, digits and - alone. Of names that
// fold to the same, in the same letter case, only one is plain.
func Plain(name string) bool {
	for i := range len(name) {
		if !plain(name[i]) {
			return false
		}
	}
	return true
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-'
}

func folded(name string) bool {
	for i := range len(name) {
		if c := name[i]; !plain(c) || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// longName is what most names fit into: they are folded without an allocation.
const longName = 48

func appendFold(b []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case !plain(c):
			c = '-'
		}
		b = append(b, c)
	}
	return b
}

// Claim reports whether a field claims to know the client, or what that asked
// for, better than the connection says: its address, its certificate, the
// scheme, host or path of its request. Only a proxy that is trusted may say so.
func Claim(name string) bool {
	var space [longName]byte
	b := appendFold(space[:0], name)
	return claims.have(b)
}

// Address reports whether a claim is about the client's address, and not about
// who it is or what it asked for.
func Address(name string) bool {
	var space [longName]byte
	return addresses.have(appendFold(space[:0], name))
}

// Override reports whether a field makes some frameworks answer for another
// method, URL or host than the one of the request.
func Override(name string) bool {
	var space [longName]byte
	return overrides.have(appendFold(space[:0], name))
}

// Trace reports whether a request with this field shows that it has come by a
// proxy, a content delivery network or a load balancer: a claim is a trace, too.
func Trace(name string) bool {
	var space [longName]byte
	b := appendFold(space[:0], name)
	return claims.have(b) || traces.have(b)
}

// table is a set of folded names, and of beginnings of names.
type table struct {
	names, prefixes []string     // in order
	by              [26]initials // their first letters
}

// initials are the names and prefixes with one first letter.
type initials struct {
	lengths                           uint64 // of the names, a bit for each
	from, to, fromPrefix, afterPrefix uint8
}

// newTable makes a table of names of less than 64 bytes, and of prefixes, each in order.
func newTable(names, prefixes []string) *table {
	t := &table{names: names, prefixes: prefixes}
	for i, name := range names {
		by := &t.by[name[0]-'a']
		if by.lengths == 0 {
			by.from = uint8(i)
		}
		by.to = uint8(i + 1)
		by.lengths |= 1 << len(name)
	}
	for i, prefix := range prefixes {
		by := &t.by[prefix[0]-'a']
		if by.afterPrefix == 0 {
			by.fromPrefix = uint8(i)
		}
		by.afterPrefix = uint8(i + 1)
	}
	return t
}

func (t *table) have(name []byte) bool {
	if len(name) == 0 || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	by := &t.by[name[0]-'a']
	for _, p := range t.prefixes[by.fromPrefix:by.afterPrefix] {
		if len(name) >= len(p) && string(name[:len(p)]) == p {
			return true
		}
	}
	if len(name) >= 64 || by.lengths>>len(name)&1 == 0 { // as for nearly all names
		return false
	}
	from, to := int(by.from), int(by.to)
	for from < to {
		middle := int(uint(from+to) >> 1)
		switch n := t.names[middle]; {
		case n == string(name):
			return true
		case n < string(name):
			from = middle + 1
		default:
			to = middle
		}
	}
	return false
}
