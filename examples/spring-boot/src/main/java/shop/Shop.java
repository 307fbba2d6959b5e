package shop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.*;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * A shop's backend beside dibs: it sends people to the storefront, redeems at checkout, and hears of
 * every coupon. Start it with: mvn package && java -jar target/shop.jar --server.port=8000
 */
@SpringBootApplication
@RestController
public class Shop {
    private static final String DIBS = System.getenv().getOrDefault("DIBS_URL", "http://127.0.0.1:8080");
    private final ObjectMapper json = new ObjectMapper();
    private final HttpClient http = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();
    private final byte[] userKey; // dibs has the same
    private final byte[] webhookKey;

    // Of a shop: tables, seen with a unique key, in one transaction.
    private final Set<String> seen = ConcurrentHashMap.newKeySet();
    private final Map<String, JsonNode> coupons = new ConcurrentHashMap<>();

    public Shop() throws Exception {
        userKey = Files.readString(Path.of(System.getenv("USER_KEY_FILE"))).strip().getBytes(UTF_8);
        webhookKey = Base64.getDecoder().decode(System.getenv("WEBHOOK_SECRET").replace("whsec_", ""));
    }

    public static void main(String[] words) {
        SpringApplication.run(Shop.class, words);
    }

    private static byte[] mac(byte[] key, byte[]... parts) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        for (byte[] part : parts) mac.update(part);
        return mac.doFinal();
    }

    private String tokenOf(String user) throws Exception {
        Base64.Encoder base64 = Base64.getUrlEncoder().withoutPadding();
        String signed = base64.encodeToString("{\"alg\":\"HS256\",\"typ\":\"JWT\"}".getBytes(UTF_8)) + "."
            + base64.encodeToString(json.writeValueAsBytes(
                Map.of("sub", user, "exp", Instant.now().getEpochSecond() + 3600)));
        return signed + "." + base64.encodeToString(mac(userKey, signed.getBytes(UTF_8)));
    }

    // Who is logged in, the shop knows from its session; here they say it themselves.
    @GetMapping("/drops/{policy}")
    public ResponseEntity<Void> visit(@PathVariable long policy, @RequestParam String user) throws Exception {
        return ResponseEntity.status(302)
            .location(URI.create(DIBS + "/drop/" + policy + "#token=" + tokenOf(user))).build();
    }

    public record Checkout(String order_id, String code) {}

    // Safe to repeat: an order that has redeemed the coupon is told so again.
    @PostMapping("/checkout")
    public ResponseEntity<?> checkout(@RequestBody Checkout order) throws Exception {
        HttpResponse<String> answer;
        try {
            answer = http.send(HttpRequest.newBuilder()
                .uri(URI.create(DIBS + "/v1/coupons/" + URLEncoder.encode(order.code, UTF_8) + "/redeem"))
                .header("Content-Type", "application/json").timeout(Duration.ofSeconds(5))
                .POST(HttpRequest.BodyPublishers.ofString(
                    json.writeValueAsString(Map.of("order_id", order.order_id)))).build(),
                HttpResponse.BodyHandlers.ofString());
        } catch (java.io.IOException error) {
            // Nobody knows whether it was redeemed: the same checkout has to be tried again.
            return ResponseEntity.status(503).body(Map.of("error", "UNAVAILABLE", "words", "try again"));
        }
        JsonNode said = json.readTree(answer.body());
        if (answer.statusCode() != 200)
            return ResponseEntity.status(answer.statusCode())
                .body(Map.of("error", said.get("code"), "words", said.get("detail")));
        return ResponseEntity.ok(Map.of("order_id", order.order_id,
            "coupon_id", said.get("coupon_id"), "state", said.get("state")));
    }

    private boolean isGenuine(String id, String at, String signatures, byte[] body) throws Exception {
        if (Math.abs(Instant.now().getEpochSecond() - Long.parseLong(at)) > 300) return false;
        byte[] right = ("v1," + Base64.getEncoder().encodeToString(
            mac(webhookKey, (id + "." + at + ".").getBytes(UTF_8), body))).getBytes(UTF_8);
        return Arrays.stream(signatures.split(" "))
            .anyMatch(one -> MessageDigest.isEqual(one.getBytes(UTF_8), right));
    }

    // The signature is of the bytes that came, so they are taken as they are.
    @PostMapping("/hooks")
    public ResponseEntity<Void> hook(@RequestHeader("webhook-id") String id,
            @RequestHeader("webhook-timestamp") String at,
            @RequestHeader("webhook-signature") String signatures, @RequestBody byte[] body) throws Exception {
        if (!isGenuine(id, at, signatures, body)) return ResponseEntity.status(401).build();
        JsonNode event = json.readTree(body);
        JsonNode coupon = event.get("data");
        // An event may come twice, and a test event has no coupon.
        if (seen.add(event.get("id").asText()) && coupon.hasNonNull("coupon_id"))
            coupons.put(coupon.get("coupon_id").asText(), coupon);
        return ResponseEntity.noContent().build();
    }

    @GetMapping("/coupons")
    public Map<String, Object> mine(@RequestParam String user) {
        List<JsonNode> items = coupons.values().stream()
            .filter(coupon -> coupon.get("user").asText().equals(user)).toList();
        return Map.of("events", seen.size(), "items", items);
    }
}
