package websocket_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestFragments is section 5.
func TestFragments(t *testing.T) {
	one, two := masked(opText, "fragment1"), masked(fin|opMore, "fragment2")
	whole := event{opText, "fragment1fragment2"}
	ping := masked(fin|opPing, "ping payload")
	pong := event{opPong, "ping payload"}
	alone := masked(fin|opMore, "alone")
	list := []ordeal{
		{name: "ping in two", parts: atOnce(masked(opPing, "fragment1"), two), code: 1002},
		{name: "pong in two", parts: atOnce(masked(opPong, "fragment1"), two), code: 1002},
		{name: "close in two", parts: atOnce(masked(opClose, closing(1000, "")), masked(fin|opMore, "bye")), code: 1002},
		{name: "ping in two within a message", parts: atOnce(one, masked(opPing, ""), two), code: 1002},
		{name: "continuation of nothing", parts: atOnce(alone, masked(fin|opText, "Hello")), code: 1002},
		{name: "continuation of nothing, not the last", parts: atOnce(masked(opMore, "alone"), masked(fin|opText, "Hello")), code: 1002},
		{name: "empty continuation of nothing", parts: atOnce(masked(fin|opMore, "")), code: 1002},
		{name: "continuation behind a message in one", parts: atOnce(masked(fin|opText, "Hello"), alone), want: []event{{opText, "Hello"}}, code: 1002},
		{name: "continuation behind a message in two", parts: atOnce(one, two, alone, masked(fin|opText, "Hello")), want: []event{whole}, code: 1002},
		{name: "open continuation behind a message in two", parts: atOnce(one, two, masked(opMore, "alone"), masked(fin|opText, "Hello")), want: []event{whole}, code: 1002},
		{name: "text within a text", parts: atOnce(one, masked(fin|opText, "fragment2")), code: 1002},
		{name: "open text within a text", parts: atOnce(one, masked(opText, "fragment2")), code: 1002},
		{name: "binary within a text", parts: atOnce(one, masked(fin|opBinary, "fragment2")), code: 1002},
		{name: "text within a binary", parts: atOnce(masked(opBinary, "fragment1"), masked(fin|opText, "fragment2")), code: 1002},
		{name: "text within a text behind a ping", parts: atOnce(one, ping, masked(fin|opText, "fragment2")), want: []event{pong}, code: 1002},
	}
	for _, op := range []byte{opText, opBinary} {
		list = append(list, goodFragments(op)...)
	}
	for _, o := range []ordeal{
		{name: "two, with a ping between", parts: atOnce(one, ping, two), want: []event{pong, whole}},
		{name: "two, with an empty ping between", parts: atOnce(one, masked(fin|opPing, ""), two), want: []event{{opPong, ""}, whole}},
		{name: "two, with a pong between", parts: atOnce(one, masked(fin|opPong, "x"), two), want: []event{whole}},
		{
			name:  "two, with many pings between",
			parts: atOnce(one, ping, ping, ping, masked(fin|opPing, noise(125)), two, ping),
			want:  []event{pong, pong, pong, {opPong, noise(125)}, whole, pong},
		},
		{
			name: "five, with pings between, which are answered before the end",
			parts: []part{
				{send: join(one, masked(opMore, "a"), ping), await: 1},
				{send: join(masked(opMore, "b"), masked(opMore, "c"), masked(fin|opPing, "again")), await: 2},
				{send: two},
			},
			want: []event{pong, {opPong, "again"}, {opText, "fragment1abcfragment2"}},
		},
	} {
		list = append(list, both(o)...)
	}
	ordeals(t, list)
}

// goodFragments are messages in parts of all sizes, empty ones among them.
func goodFragments(op byte) []ordeal {
	var list []ordeal
	for _, parts := range [][]string{
		{"fragment1", "fragment2"},
		{"", ""},
		{"", "all of it"},
		{"all of it", ""},
		{"", "", ""},
		{"", "in the middle", ""},
		{"a", "", "b", "", "c"},
		{strings.Repeat("x", 125), strings.Repeat("y", 126), strings.Repeat("z", 127)},
		{sample(65535), sample(1), sample(65536)},
		strings.Split(sample(300), ""),
	} {
		frames := [][]byte{masked(op, parts[0])}
		for _, p := range parts[1 : len(parts)-1] {
			frames = append(frames, masked(opMore, p))
		}
		frames = append(frames, masked(fin|opMore, parts[len(parts)-1]))
		all := strings.Join(parts, "")
		o := ordeal{
			name:  fmt.Sprintf("opcode %d, %d bytes in %d, %.3q", op, len(all), len(parts), parts[0]),
			parts: atOnce(frames...),
			want:  []event{{op, all}},
		}
		if len(all) > 2000 {
			list = append(list, o)
			continue
		}
		list = append(list, both(o)...)
		// One frame after the other has come back.
		slow := ordeal{name: o.name + ", one after the other", want: o.want}
		for i, f := range frames {
			p := part{send: f}
			if i < len(frames)-1 {
				p.bytes = len(strings.Join(parts[:i+1], ""))
			}
			slow.parts = append(slow.parts, p)
		}
		list = append(list, slow)
	}
	return list
}

// TestSeveralInOne sends different things in one segment: what is right is
// answered in order before what is wrong ends it.
func TestSeveralInOne(t *testing.T) {
	var frames [][]byte
	var want []event
	for i := range 300 {
		op := byte(opText + i%2)
		payload := sample(i * 7 % 400)
		switch i % 5 {
		case 0:
			frames = append(frames, masked(op, payload), masked(fin|opPing, fmt.Sprint(i)), masked(fin|opMore, payload))
			want = append(want, event{opPong, fmt.Sprint(i)}, event{op, payload + payload})
		case 1:
			frames = append(frames, masked(fin|opPong, payload[:min(len(payload), 125)]))
		default:
			frames = append(frames, masked(fin|op, payload))
			want = append(want, event{op, payload})
		}
	}
	var list []ordeal
	for _, chop := range []int{0, 3, 64, 1000} {
		list = append(list, ordeal{name: fmt.Sprintf("%d a write", chop), parts: []part{{send: join(frames...), chop: chop}}, want: want})
	}
	behind := join(masked(fin|opText, "behind"), masked(fin|opPing, "behind"), []byte(noise(3000)))
	for code, bad := range map[int][]byte{
		1002: masked(fin|3, "x"), 1007: masked(fin|opText, "\xff"),
	} {
		list = append(list, ordeal{
			name: fmt.Sprintf("a fault for %d behind it", code), parts: atOnce(append(frames, bad, behind)...), want: want, code: code,
		})
	}
	list = append(list, ordeal{
		name:  "a close frame behind it",
		parts: atOnce(append(frames, masked(fin|opClose, closing(1000, "bye")), behind)...), want: want, code: 1000, closed: true,
	})
	ordeals(t, list)
}
