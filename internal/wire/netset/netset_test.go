package netset

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func TestHas(t *testing.T) {
	s, err := Parse([]string{"10.0.0.0/8", "192.0.2.7", "192.0.2.8", "10.1.0.0/16", "2001:db8::/32", "::ffff:198.51.100.0/120", "unix"})
	if err != nil {
		t.Fatal(err)
	}
	for a, want := range map[string]bool{
		"10.0.0.0": true, "10.255.255.255": true, "9.255.255.255": false, "11.0.0.0": false,
		"192.0.2.6": false, "192.0.2.7": true, "192.0.2.8": true, "192.0.2.9": false,
		"::ffff:10.2.3.4": true, "198.51.100.9": true, "198.51.101.9": false,
		"2001:db8:ffff::1": true, "2001:db9::": false, "fe80::1%eth0": false, "::": false, "0.0.0.0": false,
	} {
		if got := s.Has(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %v", a, got)
		}
	}
	if !s.Has(netip.Addr{}) || (Set{}).Has(netip.Addr{}) || !(Set{}).Empty() || s.Empty() {
		t.Error("UNIX sockets, or the empty set")
	}
}

func TestBad(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1/8":      "write 10.0.0.0/8 for the network, or 10.0.0.1 for the address alone",
		"10.0.0.0/33":     "neither an address nor a network",
		"example.org":     "neither an address nor a network",
		"fe80::1%eth0":    "neither an address nor a network",
		"":                "neither an address nor a network",
		"::ffff:0:0/90":   "write the network of IPv4 addresses as such",
		"2001:db8::1/32 ": "neither an address nor a network",
	} {
		if _, err := Parse([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}

// FuzzSet compares a set with a look at each network.
func FuzzSet(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		random := rand.New(rand.NewPCG(a, b))
		address := func() netip.Addr { // close together, so that networks overlap
			if random.IntN(2) == 0 {
				return netip.AddrFrom4([4]byte{10, 0, byte(random.IntN(4)), byte(random.IntN(256))})
			}
			var bytes [16]byte
			bytes[0] = 0x20
			binary.BigEndian.PutUint32(bytes[random.IntN(3)*4+1:], random.Uint32N(8))
			return netip.AddrFrom16(bytes)
		}
		var networks []netip.Prefix
		var list []string
		for range random.IntN(20) {
			a := address()
			p := netip.PrefixFrom(a, random.IntN(a.BitLen()+1)).Masked()
			networks, list = append(networks, p), append(list, p.String())
		}
		s, err := Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		half, err := Parse(list[:len(list)/2])
		if err != nil {
			t.Fatal(err)
		}
		rest, err := Parse(list[len(list)/2:])
		if err != nil {
			t.Fatal(err)
		}
		union := half.Union(rest)
		for range 100 {
			a, want := address(), false
			for _, p := range networks {
				want = want || p.Contains(a)
			}
			if s.Has(a) != want || union.Has(a) != want {
				t.Fatalf("%s in %s: %v", a, list, !want)
			}
		}
	})
}

func BenchmarkHas(b *testing.B) {
	for _, n := range []int{1, 10, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list := make([]string, n)
			for i := range list {
				var four [4]byte
				binary.BigEndian.PutUint32(four[:], uint32(i)<<10)
				list[i] = netip.AddrFrom4(four).String()
			}
			s, err := Parse(list)
			if err != nil {
				b.Fatal(err)
			}
			a := netip.MustParseAddr("203.0.113.9")
			for b.Loop() {
				if s.Has(a) {
					b.Fatal(a)
				}
			}
		})
	}
}
