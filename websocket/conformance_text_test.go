package websocket_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// texts are the sequences that section 6 asks about: those of Markus Kuhn's
// stress test of UTF-8 decoders, and what is around them.
func texts() map[string][]string {
	const greek = "κόσμε"
	all := map[string][]string{
		"usual":                   {"", "Hello-µ@ßöäüàá-UTF-8!!", greek, "hello$" + greek + "!$end", "いろはにほへと", "\U0001f600\U0001f680"},
		"first of each length":    {"\x00", "\xc2\x80", "\xe0\xa0\x80", "\xf0\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80"},
		"last of each length":     {"\x7f", "\xdf\xbf", "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf", "\xf7\xbf\xbf\xbf", "\xfb\xbf\xbf\xbf\xbf", "\xfd\xbf\xbf\xbf\xbf\xbf"},
		"other limits":            {"\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbd", "\xf4\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf1\x80\x80\x80", "\xf3\xbf\xbf\xbf", "\xf5\x80\x80\x80"},
		"continuations alone":     {"\x80", "\xbf"},
		"impossible":              {"\xfe", "\xff", "\xfe\xfe\xff\xff", "\xc0", "\xc1", "\xc0\x80", "\xc1\xbf"},
		"overlong slash":          {"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xf8\x80\x80\x80\xaf", "\xfc\x80\x80\x80\x80\xaf"},
		"greatest overlong":       {"\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf8\x87\xbf\xbf\xbf", "\xfc\x83\xbf\xbf\xbf\xbf"},
		"overlong zero":           {"\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf8\x80\x80\x80\x80", "\xfc\x80\x80\x80\x80\x80"},
		"surrogates":              {"\xed\xa0\x80", "\xed\xad\xbf", "\xed\xae\x80", "\xed\xaf\xbf", "\xed\xb0\x80", "\xed\xbe\x80", "\xed\xbf\xbf"},
		"without the last byte":   {"\xc2", "\xe0\xa0", "\xf0\x90\x80", "\xdf", "\xef\xbf", "\xf4\x8f\xbf", "\xf8\x80\x80\x80", "\xfc\x80\x80\x80\x80"},
		"greek and then nonsense": {greek + "\xed\xa0\x80" + "edited", greek + "\xf4\x90\x80\x80" + "edited", greek + "\xff"},
		"specials":                {"\ufff9", "\ufffa", "\ufffb", "\ufffc", "\ufffd", "\ufffe", "\uffff", "\ufeffwith a mark", "\u200b\u202e"},
	}
	for n := 2; n <= 7; n++ {
		all["continuations alone"] = append(all["continuations alone"], strings.Repeat("\x80\xbf", 4)[:n])
	}
	every := ""
	for b := 0x80; b <= 0xbf; b++ {
		every += string([]byte{byte(b)})
	}
	all["continuations alone"] = append(all["continuations alone"], every)
	for _, starts := range [][2]int{{0xc0, 0xdf}, {0xe0, 0xef}, {0xf0, 0xf7}, {0xf8, 0xfb}, {0xfc, 0xfd}} {
		s := ""
		for b := starts[0]; b <= starts[1]; b++ {
			s += string([]byte{byte(b), ' '})
		}
		all["starts alone"] = append(all["starts alone"], s)
	}
	for n := range len(greek) {
		all["cut"] = append(all["cut"], greek[:n+1])
	}
	for i, a := range []string{"\xed\xa0\x80", "\xed\xad\xbf", "\xed\xae\x80", "\xed\xaf\xbf"} {
		for j, b := range []string{"\xed\xb0\x80", "\xed\xbf\xbf"} {
			all["pairs of surrogates"] = append(all["pairs of surrogates"], a+b)
			_, _ = i, j
		}
	}
	for plane := range 17 {
		for _, r := range []rune{0xfffe, 0xffff} {
			all["no characters"] = append(all["no characters"], string(rune(plane)<<16|r))
		}
	}
	all["concatenated"] = []string{strings.Join(all["without the last byte"], "")}
	return all
}

// wrongAt is how many bytes a server has to see to know that a text is none;
// 0: it is one, or only cut.
func wrongAt(s string) int {
	for at := 0; at < len(s); {
		_, n := utf8.DecodeRuneInString(s[at:])
		if n == 1 && s[at] >= utf8.RuneSelf {
			for end := at + 1; end <= len(s); end++ {
				if utf8.FullRuneInString(s[at:end]) {
					return end
				}
			}
			return 0
		}
		at += n
	}
	return 0
}

// TestText is section 6: each text in one frame, byte by byte, in a frame for
// each byte, behind enough others that it is not the first in a word of the
// machine, and compressed.
func TestText(t *testing.T) {
	var list []ordeal
	for about, texts := range texts() {
		for i, s := range texts {
			o := ordeal{name: fmt.Sprintf("%s %d %.8q", about, i, s)}
			expect := func(name, s string, parts []part) {
				o := ordeal{name: o.name + ", " + name, parts: parts, code: 1007}
				if utf8.ValidString(s) {
					o.want, o.code = []event{{opText, s}}, 0
				}
				list = append(list, o)
			}
			frame := masked(fin|opText, s)
			expect("at once", s, atOnce(frame))
			expect("byte by byte", s, []part{{send: frame, chop: 1}})
			expect("in many frames", s, atOnce(fragmented(opText, s, 1)))
			long := sample(4099) + s + sample(70)
			expect("within others", long, atOnce(masked(fin|opText, long)))
		}
	}
	ordeals(t, list)
}

// TestTextFailsFast sends the beginning of a frame, or of a message, up to the
// first byte that cannot be right, and no more: that is answered already.
func TestTextFailsFast(t *testing.T) {
	var list []ordeal
	for about, texts := range texts() {
		for i, s := range texts {
			n := wrongAt(s)
			if n == 0 {
				continue
			}
			name := fmt.Sprintf("%s %d %.8q", about, i, s)
			whole := masked(fin|opText, "good"+s[:n]+"more")
			list = append(list,
				ordeal{name: name + ", within a frame", parts: []part{{send: whole[:len(whole)-4]}}, code: 1007},
				ordeal{name: name + ", within a message", parts: []part{
					{send: masked(opText, "good"), bytes: 4}, {send: masked(opMore, s[:n])},
				}, code: 1007},
				ordeal{name: name + ", when all before it has come back", parts: []part{
					{send: whole[:6+4], bytes: 4}, {send: whole[6+4 : 6+4+n]},
				}, code: 1007})
		}
	}
	ordeals(t, list)
}

// TestCompressedText is that compressed text is held to the same.
func TestCompressedText(t *testing.T) {
	var list []ordeal
	for about, texts := range texts() {
		for i, s := range texts {
			o := ordeal{
				name:  fmt.Sprintf("%s %d %.8q", about, i, s),
				parts: atOnce(masked(fin|rsv1|opText, deflate(s, 6, 1))),
				want:  []event{{opText, s}},
			}
			if !utf8.ValidString(s) {
				o.want, o.code = nil, 1007
			}
			list = append(list, o)
		}
	}
	ordealsWith(t, list, usualOffer)
}

// TestBinaryIsNoText sends all of that as binary messages.
func TestBinaryIsNoText(t *testing.T) {
	var o ordeal
	var frames [][]byte
	for _, texts := range texts() {
		for _, s := range texts {
			frames = append(frames, fragmented(opBinary, s, 2))
			o.want = append(o.want, event{opBinary, s})
		}
	}
	o.name, o.parts = "all", atOnce(frames...)
	ordeals(t, []ordeal{o})
}
