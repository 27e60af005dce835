package websocket_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"millrace/store/bus"
	"millrace/websocket"
	"millrace/websocket/channels"
	"millrace/websocket/conn"
)

// An echo in any Go program: the engine moves the bytes of all WebSockets, the
// handler does the handshakes.
func Example() {
	engine := conn.NewEngine(nil)
	defer engine.Close()
	h, err := websocket.New(websocket.Options{Echo: &websocket.Echo{}}, websocket.Deps{Engine: engine})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()
	site := httptest.NewServer(h)
	defer site.Close()

	c, _, _, err := ws.Dial(context.Background(), "ws"+strings.TrimPrefix(site.URL, "http"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if err := wsutil.WriteClientText(c, []byte("hello")); err != nil {
		fmt.Println(err)
		return
	}
	answer, err := wsutil.ReadServerText(c)
	fmt.Println(string(answer), err)
	// Output: hello <nil>
}

// Channels below a path of a program's own. What is published reaches
// WebSockets at /live/ws and event streams at /live/sse.
func Example_channels() {
	const key = "0123456789abcdef"
	o := websocket.Options{Channels: &channels.Options{Keys: []string{key}}}
	engine := conn.NewEngine(nil)
	defer engine.Close()
	h, err := websocket.New(o, websocket.Deps{Engine: engine, Bus: bus.NewMemory(o.Channels.Keep())})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/live/", http.StripPrefix("/live", h))
	site := httptest.NewServer(mux)
	defer site.Close()
	defer h.Close() // first: it ends the event stream

	stream, err := http.Get(site.URL + "/live/sse?channel=news")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stream.Body.Close()
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		line := lines.Text()
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			fmt.Println(data)
			return
		}
		if strings.HasPrefix(line, "id: ") { // the subscription has begun
			publish(site.URL+"/live/", "news", "it works", key)
		}
	}
	// Output: {"message":"news","offset":1,"data":"it works"}
}

// publish sends a publication as any program may that has the key.
func publish(base, channel, text, key string) {
	req, err := http.NewRequest(http.MethodPost, base+"publish?channel="+channel, strings.NewReader(text))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		fmt.Println(resp.Status, string(body))
	}
}
