package queue

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// near checks the prediction for a size.
func near(t *testing.T, c costs, mp, want, tolerance float64) {
	t.Helper()
	d, ok := c.predict("x", mp)
	if got := float64(d) / float64(time.Millisecond); !ok || math.Abs(got-want) > want*tolerance {
		t.Errorf("%v megapixels: %.1f ms (%v), want %.1f", mp, got, ok, want)
	}
}

func TestCostIsUnknownAtFirst(t *testing.T) {
	c := costs{}
	for _, d := range []time.Duration{0, -time.Second} {
		c.learn("x", 1, d)
	}
	for _, mp := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		c.learn("x", mp, time.Second)
	}
	if _, ok := c.predict("x", 1); ok || len(c) != 0 {
		t.Error("learned something of nothing")
	}
	c.learn("x", 4, 400*time.Millisecond)
	near(t, c, 8, 800, 0.01)
	if _, ok := c.predict("y", 1); ok {
		t.Error("another class is known, too")
	}
	for _, mp := range []float64{-1, math.NaN(), math.Inf(1), math.MaxFloat64} {
		if d, ok := c.predict("x", mp); !ok || d < 0 {
			t.Errorf("%v megapixels: %v, %v", mp, d, ok)
		}
	}
}

func TestCostHasAFixedPart(t *testing.T) {
	c := costs{}
	r := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		mp := 0.5 + 10*r.Float64()
		c.learn("x", mp, milliseconds((60+90*mp)*(0.95+0.1*r.Float64())))
	}
	near(t, c, 0.5, 105, 0.25)
	near(t, c, 5, 510, 0.1)
	near(t, c, 20, 1860, 0.15)
}

func TestCostOfEqualPictures(t *testing.T) {
	c := costs{}
	for i := range 20 {
		c.learn("x", 5, milliseconds(500+float64(i%3)*10))
	}
	near(t, c, 5, 510, 0.03)
	near(t, c, 10, 1020, 0.03)
}

func TestCostOutlier(t *testing.T) {
	for _, outlier := range []float64{0.001, 1, 100} { // times what it should be
		for at := range 20 {
			c := costs{}
			for i := range 20 {
				mp := float64(i%7 + 2)
				ms := 40 + 100*mp
				if i == at {
					ms *= outlier
				}
				c.learn("x", mp, milliseconds(ms))
				if i > 3 { // one of more than three
					near(t, c, 5, 540, 0.35)
				}
			}
		}
	}
}

// The first image pays for compiling the codec.
func TestCostForgetsTheFirst(t *testing.T) {
	c := costs{}
	c.learn("x", 2, 4*time.Second)
	for range 3 {
		c.learn("x", 2, time.Second)
	}
	near(t, c, 2, 1000, 0.01)
}

func TestCostFollowsTheMachine(t *testing.T) {
	c := costs{}
	for i := range 100 {
		mp := float64(i%5 + 1)
		c.learn("x", mp, milliseconds(100*mp))
	}
	for i := range 6 {
		mp := float64(i%5 + 1)
		c.learn("x", mp, milliseconds(300*mp))
	}
	near(t, c, 3, 900, 0.25)
}

// Thumbnails take a few milliseconds whatever their size, and must not make
// photographs look a hundred times as slow as they are, nor become free.
func TestCostOfTinyPictures(t *testing.T) {
	c := costs{}
	for i := range 20 {
		c.learn("x", 0.001*float64(i+1), milliseconds(20))
	}
	near(t, c, 0.01, 20, 0.01)
	near(t, c, 8, 640, 0.01) // a guess, but no minutes
	for range 4 {
		c.learn("x", 8, milliseconds(820))
	}
	near(t, c, 8, 820, 0.1)
	near(t, c, 0.01, 20, 1.5)
}

func TestCostIsNeverNegative(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		c := costs{}
		for range 1 + r.IntN(20) {
			c.learn("x", math.Exp(r.Float64()*14-8), milliseconds(math.Exp(r.Float64()*14-4)))
			m := c["x"]
			if m.fixed < 0 || m.byArea <= 0 || math.IsNaN(m.fixed+m.byArea) || math.IsInf(m.byArea, 0) {
				t.Fatalf("%+v", m)
			}
		}
	}
}

func TestCostClassesAreBounded(t *testing.T) {
	c := costs{}
	for i := range 2 * maxClasses {
		c.learn(Class(fmt.Sprint(i)), 1, time.Second)
	}
	if len(c) != maxClasses {
		t.Errorf("%d classes", len(c))
	}
}

func TestQueueLearns(t *testing.T) {
	inBubble(t, Options{Workers: 2}, func(t *testing.T, q *Queue) {
		if ms, jobs := q.Cost("jpeg>webp"); ms != 0 || jobs != 0 {
			t.Errorf("%v of %d jobs", ms, jobs)
		}
		for i := range 5 {
			<-submit(t, q, Job{Key: "a", Class: "jpeg>webp", Megapixels: float64(i + 1), Run: takes(time.Duration(i+1) * 50 * time.Millisecond)}).Done()
		}
		if ms, jobs := q.Cost("jpeg>webp"); math.Abs(ms-50) > 1 || jobs != 5 {
			t.Errorf("%v ms of %d jobs, want 50 of 5", ms, jobs)
		}
		if s := q.Stats(); len(s.Costs) != 1 || math.Abs(s.Costs["jpeg>webp"]-50) > 1 || s.Done != 5 {
			t.Errorf("%+v", s)
		}
	})
}

func TestPredict(t *testing.T) {
	inBubble(t, Options{Workers: 2, Memory: 100, Idle: 5 * time.Second}, func(t *testing.T, q *Queue) {
		job := func(key string, p Priority, seconds float64) Job {
			return Job{
				Key: key, Class: "x", Megapixels: seconds, Priority: p, Memory: 1,
				Run: takes(time.Duration(seconds * float64(time.Second))), // 1 s a megapixel
			}
		}
		predicts := func(j Job, want time.Duration) {
			t.Helper()
			got, ok := q.Predict(j)
			if !ok || (got-want).Abs() > time.Millisecond {
				t.Errorf("%s: %v (%v), want %v", j.Key, got, ok, want)
			}
		}
		if _, ok := q.Predict(job("a", Urgent, 1)); ok {
			t.Error("nothing is known yet")
		}
		<-submit(t, q, job("a", Urgent, 1)).Done()
		predicts(job("a", Urgent, 3), 3*time.Second)
		predicts(job("i", Idle, 3), 8*time.Second)

		submit(t, q, job("r1", Urgent, 4))
		submit(t, q, job("r2", Urgent, 6))
		predicts(job("u", Urgent, 1), 5*time.Second)
		time.Sleep(2 * time.Second)
		predicts(job("u", Urgent, 1), 3*time.Second)
		predicts(job("r2", Urgent, 6), 4*time.Second) // runs
		submit(t, q, job("b1", Background, 10))
		submit(t, q, job("u1", Urgent, 3)) // 2 to 5
		predicts(job("u", Urgent, 1), 5*time.Second)
		predicts(job("b", Background, 1), 6*time.Second)    // r2's worker is free at 4, for b1; u1's at 5
		predicts(job("b1", Background, 10), 14*time.Second) // waits
		predicts(job("b1", Urgent, 10), 14*time.Second)     // more urgent, but u1 takes r1's worker
		predicts(job("u1", Background, 3), 5*time.Second)   // not less urgent
		predicts(job("i", Idle, 1), 20*time.Second)         // all ended at 14, quiet until 19
		submit(t, q, job("i1", Idle, 2))
		predicts(job("i", Idle, 1), 22*time.Second)
		predicts(job("i1", Idle, 2), 21*time.Second)

		big := job("big", Urgent, 1)
		big.Memory = 100
		predicts(big, 6*time.Second) // needs all of them to end, but Background ones
		big.Memory = 101
		if _, ok := q.Predict(big); ok {
			t.Error("too big, and a prediction")
		}
		if _, ok := q.Predict(Job{Key: "y", Class: "y", Megapixels: 1}); ok {
			t.Error("another class, and a prediction")
		}
	})
}

func TestPredictWithStrangers(t *testing.T) {
	inBubble(t, Options{Workers: 1}, func(t *testing.T, q *Queue) {
		known := Job{Key: "a", Class: "x", Megapixels: 1, Run: takes(time.Second)}
		<-submit(t, q, known).Done()
		submit(t, q, Job{Key: "stranger", Class: "y", Megapixels: 2, Run: takes(100 * time.Second)})
		if d, ok := q.Predict(known); !ok || d != 3*time.Second {
			t.Errorf("%v (%v), want 3 s: a stranger counts as one of ours", d, ok)
		}
		time.Sleep(40 * time.Second) // it should have ended by now
		if d, ok := q.Predict(known); !ok || d != 11*time.Second {
			t.Errorf("%v (%v), want 11 s: what is late may stay so", d, ok)
		}
	})
}

// The prediction agrees with what happens then, if nothing else comes.
func TestPredictionComesTrue(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			q := New(Options{Workers: 1 + r.IntN(4), Reserve: r.IntN(3), Depth: 100})
			defer q.Close()
			random := func(i int) Job {
				mp := float64(1 + r.IntN(8))
				return Job{Key: fmt.Sprint(i), Class: "x", Megapixels: mp, Priority: Priority(r.IntN(2)), Run: takes(milliseconds(100 * mp))}
			}
			<-submit(t, q, random(-1)).Done()
			for i := range r.IntN(40) {
				submit(t, q, random(i))
				if r.IntN(3) == 0 {
					time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
				}
			}
			j := random(100)
			want, ok := q.Predict(j)
			began := time.Now()
			<-submit(t, q, j).Done()
			if took := time.Since(began); !ok || (took-want).Abs() > time.Millisecond {
				t.Errorf("seed %d: predicted %v (%v), took %v", seed, want, ok, took)
			}
		})
	}
}

func BenchmarkSubmit(b *testing.B) {
	q := New(Options{Workers: 2})
	defer q.Close()
	job := Job{Key: "a", Class: "x", Megapixels: 1, Run: func(context.Context, bool) (time.Duration, error) { return time.Millisecond, nil }}
	for b.Loop() {
		ticket, err := q.Submit(job)
		if err != nil {
			b.Fatal(err)
		}
		<-ticket.Done()
	}
}

// BenchmarkPredict is a prediction behind a full queue.
func BenchmarkPredict(b *testing.B) {
	for _, waiting := range []int{0, 1000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			q := New(Options{Workers: 2})
			defer q.Close()
			known := Job{Key: "x", Class: "x", Megapixels: 1, Run: func(context.Context, bool) (time.Duration, error) { return time.Millisecond, nil }}
			ticket, err := q.Submit(known)
			if err != nil {
				b.Fatal(err)
			}
			<-ticket.Done()
			for i := range waiting + 2 {
				if _, err := q.Submit(Job{Key: fmt.Sprint(i), Class: "x", Megapixels: 1, Run: takes(time.Hour)}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := q.Predict(known); !ok {
					b.Fatal("unknown")
				}
			}
		})
	}
}

func BenchmarkLearn(b *testing.B) {
	c := costs{}
	for i := 0; b.Loop(); i++ {
		mp := float64(i%13 + 1)
		c.learn("x", mp, milliseconds(20+100*mp))
	}
}
