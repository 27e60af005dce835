package channels

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// api is what the server API answers.
func (r *rig) api(path, body string) (status int, text string) {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.c.ServeAPI(w, request(r.t, http.MethodPost, path, body))
	return w.Code, strings.ReplaceAll(w.Body.String(), r.epoch(), "EPOCH")
}

// TestAPITogether: of several commands those that are wrong do not undo, hide or stop
// the others.
func TestAPITogether(t *testing.T) {
	bubble(t, Options{Centrifuge: true}, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			path, body string
			status     int
			answer     string
		}{
			{
				"/api/batch", `{"commands":[{"publish":{"channel":"a","data":"<b>"}},{"nonsense":{}},{"publish":{"channel":1}},{"publish":{"channel":"a","data":2}},{"unsubscribe":{"user":"ann"}}]}`, 200,
				`{"replies":[{"publish":{"offset":1,"epoch":"EPOCH"}},` +
					`{"error":{"code":107,"message":"bad request: There is no method \"nonsense\"."}},` +
					`{"error":{"code":107,"message":"bad request: The parameters cannot be read: cannot unmarshal number into Go struct field apiPublication.channel of type string."}},` +
					`{"publish":{"offset":2,"epoch":"EPOCH"}},{"unsubscribe":{}}]}` + "\n",
			},
			{
				"/api", `{"method":"publish","params":{"channel":"a","data":3}}` + "\n" + `{"method":"nonsense"}` + "\n" + `{"method":"unsubscribe","params":{"user":"ann"}}`, 200,
				`{"result":{"offset":3,"epoch":"EPOCH"}}` + "\n" + `{"error":{"code":107,"message":"bad request: There is no method \"nonsense\"."}}` + "\n" + `{"result":{}}` + "\n",
			},
			{"/api/batch", `{"commands":[]}`, 200, `{"replies":[]}` + "\n"},
			{"/api/batch", `{"commands":[{"publish":{"channel":"a","data":4}},{"publish":{},"info":{}}]}`, 400, ""},
			{"/api", `{"method":"publish","params":{"channel":"a","data":4}} nonsense`, 400, ""},
			{"/api", ``, 400, ""},
			{"/api/nonsense", `{}`, 404, ""},
			{"/api/history", `{"channel":"a"}`, 200, `{"result":{"publications":[],"epoch":"EPOCH","offset":3}}` + "\n"},
		} {
			if status, got := r.api(c.path, c.body); status != c.status || status == 200 && got != c.answer {
				t.Errorf("%s %s: %d\n got %swant %s", c.path, c.body, status, got, c.answer)
			}
		}
	})
}

// TestAPILongAnswers: what several commands are answered with is bounded.
func TestAPILongAnswers(t *testing.T) {
	bubble(t, Options{Centrifuge: true, History: History{Messages: 1000}}, func(t *testing.T, r *rig) {
		for range 300 {
			r.publish("a", quoted20k())
		}
		var commands []string
		for range 20 {
			commands = append(commands, `{"history":{"channel":"a","limit":-1}}`)
		}
		_, text := r.api("/api/batch", fmt.Sprintf(`{"commands":[%s]}`, strings.Join(commands, ",")))
		if len(text) > 3*apiBody || strings.Count(text, `"code":106`) < 10 || strings.Count(text, `"publications"`) < 4 {
			t.Errorf("%d bytes with %d errors", len(text), strings.Count(text, `"code":106`))
		}
	})
}

// TestListed: nobody is shown the channel of orders.
func TestListed(t *testing.T) {
	bubble(t, Options{Centrifuge: true}, func(t *testing.T, r *rig) {
		k := r.dial("")
		for _, name := range []string{"a", "mill"} {
			k.say(`{"id":2,"subscribe":{"channel":"` + name + `"}}`)
		}
		for part, want := range map[string]int{"": 2, "mill": 1, "millrace": 0, "x": 0} {
			for _, most := range []int{0, 1, 100} {
				list, all := r.c.List(part, most)
				if all != want || len(list) != min(want, most) {
					t.Errorf("%q, %d: %v of %d, want %d", part, most, list, all, want)
				}
			}
		}
		k.leave()
	})
}
