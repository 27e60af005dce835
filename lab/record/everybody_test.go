package record

import (
	"os"
	"slices"
	"testing"
	"time"
)

func TestTakers(t *testing.T) {
	t.Parallel()
	before := map[int]Usage{1: {PID: 1, CPU: time.Second, start: 7}, 2: {PID: 2, CPU: time.Second, start: 8}, 3: {PID: 3, CPU: time.Second, start: 9}}
	after := map[int]Usage{
		1: {PID: 1, CPU: 1500 * time.Millisecond, start: 7}, 2: {PID: 2, CPU: time.Second, start: 8},
		3: {PID: 3, CPU: 200 * time.Millisecond, start: 12}, // another one by now
		4: {PID: 4, CPU: 2 * time.Second, start: 13},        // begun meanwhile
	}
	var got []int
	for _, u := range Takers(before, after) {
		got = append(got, u.PID, int(u.CPU.Milliseconds()))
	}
	if want := []int{4, 2000, 1, 500, 3, 200}; !slices.Equal(got, want) {
		t.Errorf("process and ms: %v, want %v", got, want)
	}
}

func TestEverybody(t *testing.T) {
	t.Parallel()
	all, err := Everybody()
	if err != nil {
		t.Skip(err)
	}
	if me := all[os.Getpid()]; me.PID != os.Getpid() || me.Name == "" || len(all) < 2 {
		t.Errorf("of %d processes this one is %+v", len(all), me)
	}
}

// Children of ours are ours, and so are theirs; the kernel's threads are nobody's.
func TestStrangers(t *testing.T) {
	t.Parallel()
	after := map[int]Usage{1: {PID: 1, CPU: 1}, 2: {PID: 2, CPU: 1}}
	for pid, parent := range map[int]int{3: 2, 10: 1, 11: 10, 12: 11, 20: 1, 21: 20, 30: 99} {
		after[pid] = Usage{PID: pid, CPU: 1, parent: parent}
	}
	var got []int
	for _, u := range Strangers(nil, after, 10, 20) {
		got = append(got, u.PID)
	}
	if want := []int{1, 30}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
