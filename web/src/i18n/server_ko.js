// server_ko.js: what the server says in sentences of its own, in Korean: of a drop's checks, in the
// log of events, when it refuses something. {} stands for what changes in it; what is not here is said
// as the server says it.
export default {
  "The {} gate knows the policy and decides.": "{} 게이트가 이 이벤트를 알고 있으며 판정합니다.",
  "the gate does not know policy {} yet": "게이트가 아직 {}번 이벤트를 모릅니다",
  "the gate is away": "게이트에 연결할 수 없습니다",
  "The policy is closed: nobody can claim.": "종료된 이벤트입니다. 아무도 쿠폰을 받을 수 없습니다.",
  "The policy is paused: nobody can claim until it is resumed.":
    "일시 중지된 이벤트입니다. 재개하기 전에는 아무도 쿠폰을 받을 수 없습니다.",
  "Opens in {}.": "{} 뒤에 시작합니다.",
  "Open, until it is closed by hand.": "진행 중이며, 직접 종료할 때까지 계속됩니다.",
  "Open, and closes in {}.": "진행 중이며, {} 뒤에 종료됩니다.",
  "{} of {} coupons can be claimed.": "쿠폰 {1}장 중 {0}장을 받을 수 있습니다.",
  "None of the {} coupons is left.": "쿠폰 {}장 중 남은 것이 없습니다.",
  "fallback=ledger serves claims from the reserve while Redis is away, and this policy has none: they would get 503.":
    "fallback=ledger는 Redis가 멈춘 동안 예비 수량으로 응답합니다. 이 이벤트에는 예비 수량이 없어 503을 받게 됩니다.",
  "Up to {} coupons are kept for claims while Redis is away.":
    "Redis가 멈춘 동안 쓸 쿠폰을 {}장까지 남겨 둡니다.",
  "Redis judges the window, and its clock is {} ms {} this server's; let both follow the same time service.":
    "시작과 종료는 Redis가 판정하는데, Redis의 시계가 이 서버보다 {0} ms {1}. 두 기기가 같은 시각 서비스를 따르게 하십시오.",
  "No time service keeps this machine's clock right, says its kernel; compare it before the drop.":
    "이 기기의 시계를 맞춰 주는 시각 서비스가 없다고 커널이 알립니다. 이벤트 전에 시각을 확인하십시오.",
  "The clocks agree to {} ms.": "시계의 차이는 {} ms 이내입니다.",
  "The database's disk is not seen from here; it needs about {} free.":
    "데이터베이스의 디스크는 여기에서 볼 수 없습니다. 약 {}의 여유가 필요합니다.",
  "{} are free under the ledger, and it may need {}.":
    "원장이 있는 디스크에 {}의 여유가 있고, {}까지 필요할 수 있습니다.",
  "Nothing that was answered 201: a winner is told when the ledger has the coupon. A 202 after ack_timeout is only in Redis until then.":
    "201로 응답한 것은 잃지 않습니다. 원장에 쿠폰이 기록된 뒤 당첨을 알립니다. ack_timeout이 지나 202로 응답한 것은 그때까지 Redis에만 있습니다.",
  "Redis writes no append-only file: a crash of it loses every 202 that is not in the ledger yet. Set appendonly yes and appendfsync always.":
    "Redis가 append-only 파일을 쓰지 않습니다. Redis가 멈추면 아직 원장에 없는 202를 모두 잃습니다. appendonly yes와 appendfsync always로 설정하십시오.",
  "A crash of Redis may lose up to 2 s of 202s, a failover the last ones. appendfsync always, or ack=ledger, lose nothing at a crash.":
    "Redis가 멈추면 최대 2초 동안의 202를, 장애 조치가 일어나면 마지막 202를 잃을 수 있습니다. appendfsync always나 ack=ledger로 설정하면 멈추어도 잃지 않습니다.",
  "A crash of Redis loses nothing; a failover only if the replica that takes over is none of the {} that had the win when it was told.":
    "Redis가 멈추어도 잃지 않습니다. 장애 조치 때는 이어받는 복제본이 당첨을 알릴 때 그것을 갖고 있던 {}개에 들지 않는 경우에만 잃습니다.",
  "A crash of Redis loses nothing; a failover may lose the last 202s (replicas=1 waits for a replica, ack=ledger for the ledger).":
    "Redis가 멈추어도 잃지 않습니다. 장애 조치가 일어나면 마지막 202를 잃을 수 있습니다(replicas=1은 복제본을, ack=ledger는 원장을 기다립니다).",
  "Nothing: a winner is told when the ledger has the coupon on disk.":
    "잃는 것이 없습니다. 원장이 쿠폰을 디스크에 기록한 뒤 당첨을 알립니다.",
  "{} answered in {} ms, and commits.": "{}가 {} ms 만에 응답했고 기록합니다.",
  "Not known: {}": "알 수 없음: {}",
  ok: "정상",
  "in process": "이 프로세스",
  processes: "별도 프로세스",
  "ok, lag {}": "정상, 밀린 메시지 {}건",
  "disabled, as it fails for a day; `dibs webhook enable` tries again":
    "하루 동안 실패하여 꺼졌습니다. `dibs webhook enable`로 다시 켤 수 있습니다",
  "none is alive: claims are taken, and none becomes a coupon; start `dibs worker`":
    "작동하는 워커가 없습니다. 요청은 받지만 쿠폰이 되지 않습니다. `dibs worker`를 시작하십시오",
  "the gate waits to hear what the ledger made of a change":
    "게이트가 변경의 결과를 원장에서 듣기를 기다립니다",

  "The opening time was changed.": "시작 시각을 바꿨습니다.",
  "The closing time was changed.": "종료 시각을 바꿨습니다.",
  "The total was changed from {} to {}.": "총수량을 {}에서 {}(으)로 바꿨습니다.",
  "Claiming has begun.": "쿠폰을 받을 수 있게 되었습니다.",
  "The last of {} went.": "{}장 중 마지막 한 장이 나갔습니다.",
  "There is stock again: {}.": "다시 재고가 생겼습니다: {}.",
  "Claiming is paused.": "일시 중지했습니다.",
  "Claiming goes on.": "다시 시작했습니다.",
  "Closed by hand.": "직접 종료했습니다.",
  "Closed: its time is over.": "시간이 다 되어 종료되었습니다.",
  "Created with a total of {}.": "총수량 {}(으)로 만들었습니다.",
  "Dead letters: {}, {} more than before.": "처리되지 못한 요청: {}건, 전보다 {}건 많습니다.",
  "No worker is alive: claims wait for their coupons.": "작동하는 워커가 없어 요청이 쿠폰을 기다립니다.",
  "A worker is alive again.": "워커가 다시 작동합니다.",
  "The gate answers again.": "게이트가 다시 응답합니다.",
  "The gate is tried again.": "게이트에 다시 시도합니다.",
  "The gate is away: claims are served from the reserve.":
    "게이트에 연결할 수 없어 예비 수량으로 응답합니다.",
  "The gate is away: claims are refused with 503.": "게이트에 연결할 수 없어 요청에 503으로 답합니다.",

  "The server did not answer.": "서버가 응답하지 않았습니다.",
  "the coupon is REDEEMED": "이미 사용한 쿠폰입니다",
  "the coupon is CANCELLED": "취소된 쿠폰입니다",
  "the coupon is EXPIRED": "기간이 지난 쿠폰입니다",
  "the coupon is VOID": "무효인 쿠폰입니다",
  "the user is blocked": "차단된 고객입니다",
  "the policy is closed; create a new one": "종료된 이벤트입니다. 새로 만들어 주세요",
  "policy {} exists already": "{}번 이벤트가 이미 있습니다",
  "total: {} coupons are issued or pending; it cannot be {}":
    "쿠폰 {}장이 발급되었거나 대기 중이라 {}(으)로 줄일 수 없습니다",
  "total: {} coupons are issued, pending or lent; it cannot be {}":
    "쿠폰 {}장이 발급되었거나 대기 중이라 {}(으)로 줄일 수 없습니다",
  "reserve: {} of {} coupons are issued or pending; it cannot be {}":
    "쿠폰 {1}장 중 {0}장이 발급되었거나 대기 중이라 예비 수량을 {2}(으)로 할 수 없습니다",
  "{}: can be changed until {} seconds before the opening": "{}: 시작 {}초 전까지만 바꿀 수 있습니다",
  "{}: {} coupons are issued or pending": "{}: 쿠폰 {}장이 발급되었거나 대기 중입니다",
};

/* What stands in the places. */
export const values = [
  [/^ahead of$/, "빠릅니다"],
  [/^behind$/, "느립니다"],
  [/^(\d+) d (\d+) h$/, "$1일 $2시간"],
  [/^(\d+) h (\d+) min$/, "$1시간 $2분"],
  [/^(\d+) min (\d+) s$/, "$1분 $2초"],
  [/^(\d+) s$/, "$1초"],
];
