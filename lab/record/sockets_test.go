package record

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// The tables of /proc/net as a little-endian machine shows them.
const (
	tcpTable = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 ffff 100 0 0 10 0\n" +
		"   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 102 1 ffff 100 0 0 10 0\n" +
		"   2: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 103 1 ffff 20 4 30 10 -1\n"
	tcp6Table = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 104 1 ffff 100 0 0 10 0\n" +
		"   1: 00000000000000000000000000000000:1F91 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 105 1 ffff 100 0 0 10 0\n" +
		"   2: 0000000000000000FFFF00000200007F:1F92 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 106 1 ffff 100 0 0 10 0\n"
	unixTable = "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"ffff0: 00000002 00000000 00010000 0001 01 107 /run/my server/s 107 x\n" +
		"ffff1: 00000003 00000000 00000000 0001 03 108 /run/my server/s\n" +
		"ffff2: 00000002 00000000 00010000 0001 01 109 @hidden\n" +
		"ffff3: 00000002 00000000 00010000 0001 01 110\n"
)

// table is all listeners of the tables above.
func table(t *testing.T) []listener {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the tables are those of a little-endian machine")
	}
	var all []listener
	for text, parse := range map[string]func(string) ([]listener, error){
		tcpTable:  func(s string) ([]listener, error) { return parseTCP(strings.NewReader(s)) },
		tcp6Table: func(s string) ([]listener, error) { return parseTCP(strings.NewReader(s)) },
		unixTable: func(s string) ([]listener, error) { return parseUnix(strings.NewReader(s)) },
	} {
		found, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func TestMatch(t *testing.T) {
	all := table(t)
	for address, want := range map[string][]uint64{
		"127.0.0.1:8080":              {101},
		"localhost:8080":              {101, 104},
		":8080":                       {101, 104},
		"0.0.0.0:8080":                {101, 104},
		"[::1]:8080":                  {104},
		"[::]:8080":                   {101, 104},
		"10.1.2.3:8080":               nil,
		"10.1.2.3:80":                 {102}, // a wildcard
		"[::1]:80":                    nil,
		"127.0.0.1:8081":              {105}, // both families
		"[2001:db8::1]:8081":          {105},
		"127.0.0.2:8082":              {106}, // IPv4 in IPv6
		"127.0.0.1:9999":              nil,
		"unix:/run/my server/s":       nil,
		"unix:/run/my server/s 107 x": {107},
		"unix:@hidden":                {109},
	} {
		got, err := match(all, address)
		if err != nil {
			t.Errorf("match(%q): %v", address, err)
		}
		var inodes []uint64
		for _, l := range got {
			inodes = append(inodes, l.inode)
		}
		slices.Sort(inodes)
		if strings.HasPrefix(address, "localhost") { // which may have but one address
			inodes = slices.DeleteFunc(inodes, func(n uint64) bool { return n == 104 })
			want = want[:1]
		}
		if !slices.Equal(inodes, want) {
			t.Errorf("match(%q) = %d, want %d", address, inodes, want)
		}
	}
	for _, bad := range []string{"", "8080", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "unix:", "a.invalid:80", "::1:80"} {
		if got, err := match(all, bad); err == nil {
			t.Errorf("match(%q) = %v, want an error", bad, got)
		}
	}
}

func TestListenerAddress(t *testing.T) {
	for want, l := range map[string]listener{
		"127.0.0.1:80":   {tcp: netip.MustParseAddrPort("0.0.0.0:80")},
		"[::1]:80":       {tcp: netip.MustParseAddrPort("[::]:80")},
		"10.0.0.1:80":    {tcp: netip.MustParseAddrPort("10.0.0.1:80")},
		"unix:/run/s":    {path: "/run/s"},
		"unix:@abstract": {path: "@abstract"},
	} {
		if got := l.address(); got != want {
			t.Errorf("address = %q, want %q", got, want)
		}
	}
}

func TestByDepth(t *testing.T) {
	parents := map[int]int{10: 1, 20: 30, 30: 10, 40: 10, 7: 20, 1: 0, 50: 50}
	got := []int{7, 20, 30, 10, 40, 50}
	byDepth(got, func(pid int) int { return parents[pid] })
	if want := []int{10, 30, 40, 20, 7, 50}; !slices.Equal(got, want) {
		t.Errorf("byDepth = %d, want %d", got, want)
	}
}

func FuzzParseTCP(f *testing.F) {
	f.Add(tcpTable)
	f.Add(tcp6Table)
	f.Add("0: x 0 0A 0 0 0 0 0 1\n")
	f.Add("0: 0100007F:1F90 0 0A 0 0 0 0 0 x\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseTCP(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, l := range all {
			if !l.tcp.IsValid() || l.path != "" {
				t.Errorf("parseTCP(%q) = %+v", text, l)
			}
		}
	})
}

func FuzzParseUnix(f *testing.F) {
	f.Add(unixTable)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseUnix(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, l := range all {
			if l.tcp.IsValid() || !strings.Contains(text, l.path) {
				t.Errorf("parseUnix(%q) = %+v", text, l)
			}
		}
	})
}
