// peer: the HTTP server that many shops have in front of Redis: one EVALSHA per request.
//
// It answers what dibs answers, from the script in bench/claim.lua. Nothing but the standard
// library, and no more work than a decent service does: keep-alive connections, a fixed number of
// connections to Redis that are shared by all requests, whose commands are pipelined when they come
// together, and replies read in order by one reader for each connection.
//
//	peer -listen 127.0.0.1:0 -redis 127.0.0.1:6379 -sha SHA [-connections 4]
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// answer is what Redis says to one command: a number, a text, or an error.
type answer struct {
	number int64
	text   string
	err    error
}

// command waits for its turn to be written, and then for its answer.
type command struct {
	bytes []byte
	done  chan answer
}

// link is one connection to Redis: a writer that sends what has gathered in one write, and a reader
// that hands the answers out in the order of the commands.
type link struct {
	queue chan command
	sent  chan command
}

func dial(address string) (*link, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	l := &link{queue: make(chan command, 1024), sent: make(chan command, 4096)}
	go l.write(bufio.NewWriterSize(connection, 64<<10))
	go l.read(bufio.NewReaderSize(connection, 64<<10))
	return l, nil
}

func (l *link) write(out *bufio.Writer) {
	for next := range l.queue {
		for more := true; more; {
			out.Write(next.bytes)
			l.sent <- next
			select {
			case next = <-l.queue:
			default:
				more = false
			}
		}
		if err := out.Flush(); err != nil {
			fatal(err)
		}
	}
}

func (l *link) read(in *bufio.Reader) {
	for next := range l.sent {
		next.done <- readAnswer(in)
	}
}

func readAnswer(in *bufio.Reader) answer {
	line, err := in.ReadSlice('\n')
	if err != nil {
		fatal(err)
	}
	text := strings.TrimRight(string(line), "\r\n")
	switch text[0] {
	case ':':
		number, err := strconv.ParseInt(text[1:], 10, 64)
		return answer{number: number, err: err}
	case '$':
		length, err := strconv.Atoi(text[1:])
		if err != nil || length < 0 {
			return answer{err: fmt.Errorf("Redis answers %s", text)}
		}
		body := make([]byte, length+2)
		if _, err := io.ReadFull(in, body); err != nil {
			fatal(err)
		}
		return answer{text: string(body[:length])}
	default:
		return answer{err: fmt.Errorf("Redis answers %s", text)}
	}
}

func appendWord(bytes []byte, word string) []byte {
	bytes = append(bytes, '$')
	bytes = strconv.AppendInt(bytes, int64(len(word)), 10)
	bytes = append(bytes, "\r\n"...)
	bytes = append(bytes, word...)
	return append(bytes, "\r\n"...)
}

// shop has the connections, which take turns, and the beginning of every command.
type shop struct {
	links []*link
	turn  atomic.Uint64
	head  []byte
}

func (s *shop) ask(user string) answer {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		fatal(err)
	}
	bytes := append(make([]byte, 0, 320), s.head...)
	bytes = appendWord(bytes, user)
	bytes = appendWord(bytes, hex.EncodeToString(id[:]))
	bytes = appendWord(bytes, strconv.FormatInt(time.Now().UnixMilli(), 10))
	c := command{bytes: bytes, done: make(chan answer, 1)}
	s.links[s.turn.Add(1)%uint64(len(s.links))].queue <- c
	return <-c.done
}

type wish struct {
	User string `json:"user"`
}

type coupon struct {
	Result   string `json:"result"`
	PolicyID int64  `json:"policy_id"`
	User     string `json:"user"`
	Seq      int64  `json:"seq"`
	Nth      int    `json:"nth"`
	CouponID string `json:"coupon_id"`
}

type problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
}

func reply(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		fatal(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(text)
}

// ServeHTTP takes POST /v1/policies/{id}/claims.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v1/policies/"), "/claims")
	policy, err := strconv.ParseInt(id, 10, 64)
	if err != nil || r.Method != http.MethodPost {
		reply(w, http.StatusNotFound, problem{404, "NOT_FOUND"})
		return
	}
	var asked wish
	if json.NewDecoder(r.Body).Decode(&asked) != nil || asked.User == "" {
		reply(w, http.StatusBadRequest, problem{400, "INVALID_REQUEST"})
		return
	}
	won := s.ask(asked.User)
	switch {
	case won.err != nil:
		reply(w, http.StatusServiceUnavailable, problem{503, "UNAVAILABLE"})
	case won.number > 0:
		reply(w, http.StatusAccepted, coupon{"ACCEPTED", policy, asked.User, won.number, 1,
			id + "-" + strconv.FormatInt(won.number, 10)})
	default:
		reply(w, http.StatusConflict, problem{409, won.text})
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "peer:", err)
	os.Exit(1)
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	redis := flag.String("redis", "127.0.0.1:6379", "where Redis is")
	sha := flag.String("sha", "", "the script, as SCRIPT LOAD answered")
	connections := flag.Int("connections", 4, "connections to Redis")
	flag.Parse()

	s := &shop{}
	s.head = append(s.head, "*10\r\n"...)
	for _, word := range []string{"EVALSHA", *sha, "4", "{peer}:stock", "{peer}:users",
		"{peer}:pending", "{peer}:sequence"} {
		s.head = appendWord(s.head, word)
	}
	for i := 0; i < *connections; i++ {
		l, err := dial(*redis)
		if err != nil {
			fatal(err)
		}
		s.links = append(s.links, l)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		fatal(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	fmt.Fprintf(os.Stderr, "event=listening address=%s\n", listener.Addr())
	fatal(http.Serve(listener, s))
}
