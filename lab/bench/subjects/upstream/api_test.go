package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func get(u *api, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	u.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

func counted(t *testing.T, u *api) (c count) {
	t.Helper()
	if err := json.Unmarshal(get(u, "/__count").Body.Bytes(), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAnswers holds golden values: lab/experiment/cache has the same.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		url     string
		version int
		want    string
	}{
		{"/2021/a", 0, `{"count":93442,"key":"a9e0b162c8018992"}`},
		{"/2021/a", 1, `{"count":81653,"key":"a9e0b262c8018b45"}`},
		{"/2021/b", 0, `{"count":51939,"key":"90c4ac62ba085483"}`},
	} {
		if got := answer(c.url, c.version); got != c.want {
			t.Errorf("%s, version %d: %s, want %s", c.url, c.version, got, c.want)
		}
	}
	for i := range 1000 {
		if got := answer(fmt.Sprint(i), 0); len(got) != 40 || !json.Valid([]byte(got)) {
			t.Fatalf("%q has %d bytes", got, len(got))
		}
	}
	if len(failure) != 40 || !json.Valid([]byte(failure)) {
		t.Errorf("%q has %d bytes", failure, len(failure))
	}
}

// TestOneWorker asks ten times at once: the last waits for all.
func TestOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newAPI(104*time.Millisecond, 0, 1)
		begun := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if w := get(u, "/comments/count?url=/x"); w.Code != 200 || w.Body.String() != answer("/x", 0) {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
		if took := time.Since(begun); took != 1040*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if c := counted(t, u); c.Requests != 10 || c.Errors != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestGone leaves the queue before its turn: the worker does nothing for it.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newAPI(time.Second, 0, 1)
		begun := time.Now()
		var all sync.WaitGroup
		all.Go(func() { get(u, "/comments/count?url=/x") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		u.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/comments/count?url=/x", nil))
		all.Wait()
		if took := time.Since(begun); took != time.Second {
			t.Errorf("took %v", took)
		}
		if c := counted(t, u); c.Gone != 1 || c.Requests != 2 {
			t.Errorf("%+v", c)
		}
	})
}

func TestSet(t *testing.T) {
	u := newAPI(0, 0, 1)
	for _, bad := range []string{"/__set?delay=soon&version=3", "/__set?version=x&delay=1h"} {
		if w := get(u, bad); w.Code != 400 {
			t.Errorf("%s: %d", bad, w.Code)
		}
	}
	if got := get(u, "/comments/count?url=/x").Body.String(); got != answer("/x", 0) {
		t.Errorf("after refused settings: %s", got)
	}
	get(u, "/__set?version=7")
	if got := get(u, "/comments/count?url=/x").Body.String(); got != answer("/x", 7) {
		t.Errorf("version 7: %s", got)
	}
	if w := get(u, "/comments/count"); w.Code != 400 {
		t.Errorf("no url: %d", w.Code)
	}
}

// TestErrors has about the share asked for, the same ones for the same seed,
// and not the same URLs each time.
func TestErrors(t *testing.T) {
	first, changed, otherSeed := 0, 0, 0
	for i := range 10_000 {
		url := fmt.Sprintf("/post/%d", i)
		a := fails(7, 0.05, url, 0)
		if a {
			first++
		}
		if a != fails(7, 0.05, url, 1) {
			changed++
		}
		if a != fails(8, 0.05, url, 0) {
			otherSeed++
		}
		if fails(7, 0, url, 0) || !fails(7, 1, url, 0) {
			t.Fatal("none and all are not none and all")
		}
	}
	if first < 400 || first > 600 || changed < 700 || otherSeed < 700 {
		t.Errorf("%d of 10000 fail, %d are different the second time, %d with another seed", first, changed, otherSeed)
	}
	u := newAPI(0, 1, 1)
	if w := get(u, "/comments/count?url=/x"); w.Code != 500 || w.Body.String() != failure {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if c := counted(t, u); c.Errors != 1 {
		t.Errorf("%+v", c)
	}
}
