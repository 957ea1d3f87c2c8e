package kubelet

import "testing"

func TestRewrite(t *testing.T) {
	r := newRewriter(map[string]string{"/data": "/real/1", "/data/inner": "/real/2", "/holdfast": "/real/3"}, "127.64.0.2", "127.64.0.3")
	for from, want := range map[string]string{
		"/data":                         "/real/1",
		"/data/x":                       "/real/1/x",
		"/data/inner/x":                 "/real/2/x",
		"/database":                     "/database",
		"/other/data":                   "/other/data",
		"--dir=/data,/holdfast/bin":     "--dir=/real/1,/real/3/bin",
		"/holdfast:/data:/usr/bin":      "/real/3:/real/1:/usr/bin",
		"cat '/data/x' \"/data/y\"":     "cat '/real/1/x' \"/real/1/y\"",
		"http://127.0.0.1:7777/v1":      "http://127.64.0.3:7777/v1",
		"http://localhost":              "http://127.64.0.3",
		"0.0.0.0:7778":                  "127.64.0.2:7778",
		"10.0.0.0":                      "10.0.0.0",
		"127.0.0.11":                    "127.0.0.11",
		"localhost.example":             "localhost.example",
		"":                              "",
		"127.0.0.1:1 127.0.0.1:2 /data": "127.64.0.3:1 127.64.0.3:2 /real/1",
	} {
		if got := r.text(from); got != want {
			t.Errorf("%q becomes %q, want %q", from, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	var env environment
	env.set("A", "1")
	env.set("B", env.expand("$(A)2"))
	for from, want := range map[string]string{
		"$(B)-$(A)": "12-1", "$(UNKNOWN)": "$(UNKNOWN)", "$$(A)": "$(A)", "$A": "$A", "100$": "100$",
	} {
		if got := env.expand(from); got != want {
			t.Errorf("%q becomes %q, want %q", from, got, want)
		}
	}
}

func TestBlocksAreApart(t *testing.T) {
	one, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer one.release()
	two, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer two.release()
	seen := map[string]bool{one.host(): true, two.host(): true}
	for range 1000 {
		for _, b := range []*block{one, two} {
			pod, loopback, err := b.pair()
			if err != nil {
				t.Fatal(err)
			}
			if seen[pod] || seen[loopback] || pod == loopback {
				t.Fatalf("%s or %s was given before", pod, loopback)
			}
			seen[pod], seen[loopback] = true, true
		}
	}
}
