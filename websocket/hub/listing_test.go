package hub

import "testing"

// TestList: channels that have subscribers, the largest first, as many as asked for.
func TestList(t *testing.T) {
	bubble(t, Options{}, 2, func(t *testing.T, f *fixture) {
		for _, name := range []string{"news", "news", "news/de", "chat", "chat", "chat"} {
			f.join(t, Request{Channel: name})
		}
		gone := f.join(t, Request{Channel: "gone"})
		f.settled()
		f.leave(gone)
		f.settled()
		list, all := f.List("", 10)
		want(t, "all", list, []Listed{{"chat", 3}, {"news", 2}, {"news/de", 1}})
		want(t, "their number", all, 3)
		list, all = f.List("news", 1)
		want(t, "one of news", list, []Listed{{"news", 2}})
		want(t, "their number", all, 2)
	})
}
